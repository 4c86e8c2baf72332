"""The resources of a running process: host memory, descriptors, threads, children, and its plugins' driver memory."""
import json
import os
import pathlib
import socket
import struct

# As lib/monitor/protocol.h has them.
MAGIC, VERSION, FIGURES = 0x746D6D65, 1, 1
HEADER = struct.Struct("<4I")
LONGEST_ANSWER = 96 * 1024
SECONDS_TO_ANSWER = 2


def host_bytes(pid):
    """Anonymous memory. The simulated device's memory is shared, so it is not in there."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)  # it has ended, and is not waited for


def children(pid):
    """With those that have ended and are not waited for."""
    return sum(len(task.read_text().split()) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"))


def name_of(pid):
    for line in pathlib.Path("/proc/net/unix").read_text(errors="replace").splitlines():
        name = line.rpartition(" ")[2]
        if name.startswith(f"@emm-top-{pid}-"):
            return "\0" + name[1:]
    raise FileNotFoundError(pid)


def of_contexts(pid):
    """The reserved bytes of all contexts together, and the highest number of a context, from `emm top`. Without an answer, or
    while the process is busy with a context, nothing."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.settimeout(SECONDS_TO_ANSWER)
            asking.connect(name_of(pid))
            asking.send(HEADER.pack(MAGIC, VERSION, FIGURES, 0))
            answer = asking.recv(LONGEST_ANSWER)
    except OSError:
        return {}
    contexts = json.loads(answer[HEADER.size:]).get("contexts", [])
    found = {"contexts": max(context["context"] for context in contexts)} if contexts else {}
    stats = [context.get("stats") for context in contexts]
    return found if None in stats else {**found, "reserved": sum(figures["reserved_bytes"] for figures in stats)}


def sample(pid):
    """Raises OSError once the process has ended."""
    return {"host memory": host_bytes(pid), "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": len(os.listdir(f"/proc/{pid}/task")), "children": children(pid), **of_contexts(pid)}
