#!/usr/bin/env python3
"""The effect of CUDA's checkpoint of a process on memory: natively, and on emm's plugins. Needs a GPU and driver 570.

    checkpoint.py [--mib 1024] [--only WAY,...] [--cases CASE,...] [--list]

A process writes a pattern to memory. Another one locks and checkpoints it, looks what the device got back, restores
and unlocks it; then the pattern is read, and memory allocated and freed. The memory is plain, exported and open in a
third process, exported and closed again, or paused. Prints a row for each, and a sentence for what does not pass.
Each has a process of its own and 20 seconds. What the driver refuses fails nothing; ends with 1 if a process runs on
and its memory is not what it was, with 77 without a GPU. The libemm in use is EMM_LIBRARY's.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/clients/gpu"), str(HERE.parents[1] / "tools/python")]
sys.dont_write_bytecode = True

import checkpoint_memory as memory  # noqa: E402
from checkpoint_memory import DriverError, driver  # noqa: E402

SECONDS = 20
NATIVE = ("cuMemAlloc", "cuMemAllocAsync", "cuMemCreate", "cuMemCreate, shareable")
PLUGINS = ("passthrough", "pool", "pool:growth=segment", "async")
CASES = ("plain", "export open", "export closed", "paused")
CALLS = ("lock", "checkpoint", "restore", "unlock")
STATES = ("running", "locked", "checkpointed", "failed")


def rows():
    """Each way to have memory, with what that way can do."""
    for way in NATIVE:
        for case in CASES[:3] if way in ("cuMemAlloc", "cuMemCreate, shareable") else CASES[:1]:
            yield way, case
    for way in PLUGINS:
        for case in CASES if way == "pool" else CASES[:3]:
            yield way, case


# --- the process that is checkpointed, and the one that has its memory open. They talk in lines.


def say(**words):
    print(json.dumps(words), flush=True)


def heard(stream):
    """The next message; none if the process has ended."""
    line = stream.readline()
    return json.loads(line) if line.startswith("{") else {}


class Peer:
    def __init__(self, owner, way, size):
        words, descriptors = owner.export()
        self.process = subprocess.Popen([sys.executable, __file__, "--peer", way, str(size), words], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def says(self):
        """Whether it has read the pattern, or what has failed."""
        return heard(self.process.stdout).get("read", "the other process has ended")

    def asks(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def peer(way, size, words):
    opened = memory.make(way).open(words, size)
    while True:
        say(read="good" if memory.holds_pattern(opened, size) else "wrong bytes")
        if not sys.stdin.readline():
            break


def child(way, case, size):
    step = "context"
    try:
        owner, other = memory.make(way), None
        step = "allocate"
        ptr = owner.allocate(size)
        memory.write_pattern(ptr, size)
        if case.startswith("export"):
            step = "export"
            other = Peer(owner, way, size)
            if (told := other.says()) != "good":
                raise RuntimeError(told)
            if case == "export closed":
                other.end()
                owner.end_export()
                other = None
        if case == "paused":
            step = "pause"
            owner.pause()
        say(ready=True)
        sys.stdin.readline()
        if case == "paused":
            step = "resume"
            owner.resume()
        step = "content"
        say(content="good" if memory.holds_pattern(ptr, size) else "wrong bytes")
        step = "allocate"
        again = owner.allocate(size // 4)
        memory.write_pattern(again, size // 4)
        good = memory.holds_pattern(again, size // 4)
        owner.free(again, size // 4)
        say(allocate="good" if good else "wrong bytes")
        if other:
            say(peer=other.asks())
            other.end()
            owner.end_export()
        step = "free"
        owner.free(ptr, size)
        say(free="good")
    except (DriverError, RuntimeError, ValueError) as error:
        say(failed=step, why=str(error))
        return 1
    return 0


# --- the process that checkpoints it


def row(way, case, size):
    """One line for each step as it ends: `step`, `why` (good, or what failed), `seconds`, and figures."""
    from run_clients import Monitor
    monitor = Monitor()
    environment = {**os.environ, "EMM_PLUGIN": spec_of(way, case)} if way in PLUGINS else os.environ
    begun = subprocess.Popen([sys.executable, __file__, "--child", way, case, str(size)], env=environment, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ready = heard(begun.stdout)
    tell("prepare", "good" if ready.get("ready") else f"{ready.get('failed', 'it has ended')}: {ready.get('why', '')}")
    if not ready.get("ready"):
        return
    driver("cuInit", 0)
    before = monitor.used()
    locked = call("lock", begun.pid)
    if locked and call("checkpoint", begun.pid):
        time.sleep(0.1)
        say(returned=before - monitor.used())
        call("restore", begun.pid)
    if locked:
        unlocked = call("unlock", begun.pid)
        say(state=state_of(begun.pid))
        if not unlocked:  # its next call of the driver would wait forever
            begun.kill()
            return
    begun.stdin.write("\n")
    begun.stdin.flush()
    while words := heard(begun.stdout):
        if "failed" in words:
            tell(words["failed"], words["why"])
        for step, found in words.items():
            if step not in ("failed", "why"):
                tell(step, found)
    begun.stdin.close()
    say(status=begun.wait())


def spec_of(way, case):
    """async exports by option alone."""
    return "async:ipc=1" if way == "async" and case.startswith("export") else way


def tell(step, why, seconds=0.0):
    say(step=step, why=why, seconds=round(seconds, 3))


def call(step, pid):
    begin = time.monotonic()
    try:
        memory.checkpoint_call(step, pid)
        why = "good"
    except DriverError as error:
        why = str(error)
    tell(step, why, time.monotonic() - begin)
    return why == "good"


def state_of(pid):
    try:
        number = memory.state(pid)
        return STATES[number] if number < len(STATES) else str(number)
    except DriverError as error:
        return str(error)


# --- all of them


def watched(way, case, size):
    """The lines of a row within its time. Its processes end with the row."""
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen([sys.executable, __file__, "--row", way, case, str(size)], stdout=told,
                                   start_new_session=True)
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        told.seek(0)
        lines = [json.loads(line) for line in told if line.startswith("{")]
    found = {"way": way, "case": case, "steps": {}, "seconds": {}, "status": status}
    for line in lines:
        if "step" in line:
            found["steps"][line["step"]] = line["why"]
            found["seconds"][line["step"]] = line["seconds"]
        else:
            found.update({"child" if name == "status" else name: value for name, value in line.items()})
    return found


def is_broken(found):
    """The process runs, as far as the driver tells, and has not what it had. What the driver refuses is its own."""
    steps = found["steps"]
    if found["way"] not in PLUGINS:
        return False
    if steps.get("prepare") != "good":
        return True
    runs = steps.get("restore", "good") == "good" and found.get("state", "running") == "running"
    return runs and any(steps.get(name) != "good" for name in ("content", "allocate", "free"))


def sentence(found, size):
    steps = found["steps"]
    bad = [f"{step} fails: {why}" for step, why in steps.items() if why != "good"]
    if found["status"] is None:
        bad.append(f"nothing more came within {SECONDS} s after {list(steps)[-1] if steps else 'the start'}")
    elif found["status"] or found.get("child", 0) > 1 or found.get("child", 0) < 0:
        bad.append(f"the process ended with status {found.get('child', found['status'])}")
    if found["case"] != "paused" and found.get("returned", size) < size / 100 * 97:
        bad.append(f"the device got {found['returned'] >> 20} MiB back of {size >> 20}")
    if found.get("state", "running") != "running":
        bad.append(f"the process stays {found['state']}")
    if not bad:
        return "all passes"
    whole = steps.get("content") == "good" and steps.get("allocate") == "good"
    return "; ".join(bad) + ("; the process goes on, and its memory is whole" if whole else "")


def cell(found, step):
    why = found["steps"].get(step, "-")
    if why != "good":
        return why.split(":", maxsplit=1)[0] if step in CALLS else why
    return f"{found['seconds'][step]:.2f} s" if step in CALLS else why


def print_row(found):
    back = f"{found['returned'] / (1 << 30):.2f}" if "returned" in found else "-"
    cells = [cell(found, step) for step in ("prepare", "lock", "checkpoint")]
    cells += [back, *(cell(found, step) for step in ("restore", "unlock", "content", "allocate", "peer"))]
    print(f"| {found['way']} | {found['case']} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--only", help="ways, separated by semicolons")
    parser.add_argument("--cases", help="cases, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the ways and cases")
    for name in ("--row", "--child", "--peer"):
        parser.add_argument(name, nargs=3, help=argparse.SUPPRESS)
    wish = parser.parse_args()
    if wish.row:
        return row(*wish.row[:2], int(wish.row[2]))
    if wish.child:
        return child(*wish.child[:2], int(wish.child[2]))
    if wish.peer:
        return peer(wish.peer[0], int(wish.peer[1]), wish.peer[2])
    wanted = [(way, case) for way, case in rows() if (not wish.only or way in wish.only.split(";"))
              and (not wish.cases or case in wish.cases.split(","))]
    if wish.list:
        print(*(f"{way}: {case}" for way, case in wanted), sep="\n")
        return 0
    if lack := memory.missing():
        print(f"skipped: {lack}")
        return 77
    print("| memory | state | made | lock | checkpoint | GiB back | restore | unlock | content | allocate, free | open elsewhere |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    done = []
    for way, case in wanted:
        done.append(watched(way, case, wish.mib << 20))
        print_row(done[-1])
    print()
    for found in done:
        print(f"- {found['way']}, {found['case']}: {sentence(found, wish.mib << 20)}.")
    return 1 if any(is_broken(found) for found in done) else 0


if __name__ == "__main__":
    sys.exit(main())
