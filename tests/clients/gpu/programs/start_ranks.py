"""start_ranks.py PROGRAM [ARGUMENT...]: runs a program beside this file as two ranks, and tells what NCCL registered.

The status is that of the rank that failed first. NVLink multicast stays off.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from nccl_memory import registered

COUNT = 2
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
TELLING = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "REG"}


def wait(processes):
    """The first status that is not 0; then the other ranks, which may wait for that one, are killed."""
    statuses = [None] * len(processes)
    while None in statuses:
        statuses = [process.poll() for process in processes]
        if any(statuses):
            break
        time.sleep(0.02)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
    return next((status for status in statuses if status), 0)


def start(program, arguments):
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        logs = pathlib.Path(folder, "logs")
        logs.mkdir()
        common = {**os.environ, **WITHOUT_MULTICAST, **TELLING, "NCCL_DEBUG_FILE": str(logs / "%p"),
                  "EMM_TEST_MEETING": str(pathlib.Path(folder, "meeting"))}
        processes = []
        for rank in range(COUNT):
            processes.append(subprocess.Popen([sys.executable, "-B", program, *arguments],
                                              env={**common, "EMM_TEST_RANK": str(rank)}))
            ending.callback(processes[-1].kill)
        status = wait(processes)
        count = registered(path.read_text(errors="replace") for path in logs.iterdir())
        print(f"figure registered-buffers {count}")
        return status


if __name__ == "__main__":
    sys.exit(start(pathlib.Path(__file__).resolve().parent / sys.argv[1], sys.argv[2:]))
