"""Runs the emm tool for the tests beside this file, on the simulated driver."""
import json
import os
import pathlib
import subprocess
import tempfile

EMM = os.environ["EMM_TEST_PROGRAM"]
FIXTURES = pathlib.Path(os.environ["EMM_TEST_FIXTURES"])
HEADER = "time,thread,stream,op,id,size\n"

ERROR_KEYS = ["code", "stage", "message", "path", "expected", "got", "tried", "hint"]
PAIR_OF_BLOCKS = ["0,0,alloc,1,1000", "0,0,free,1,1000", "0,0,alloc,2,5000", "0,0,free,2,5000"]

# Thread 1 frees thread 0's blocks, on its own stream.
ACROSS_THREADS = [row for i in range(300) for row in
                  (f"0,0,alloc,{i},{512 * (i % 7 + 1)}", f"1,1,free,{i},{512 * (i % 7 + 1)}")]


def run(*arguments, data_limit=None, **variables):
    """The finished process, of at most so many bytes of data. A variable given as None is removed."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("EMM_") or key == "EMM_DRIVER"}
    for name, value in variables.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = str(value)
    limit = data_limit and ["prlimit", f"--data={data_limit}"]
    return subprocess.run([*(limit or []), EMM, *map(str, arguments)], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, check=False)


def answer(*arguments, status=0, **variables):
    """The output of --json, which must be one object and nothing else."""
    done = run(*arguments, "--json", **variables)
    if done.returncode != status:
        raise AssertionError(f"{arguments}: expected status {status}, found {done.returncode}\n"
                             f"{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def fixture(name):
    return str(FIXTURES / f"libemm-{name}.so")


class Trace:
    """A trace file for the length of a `with`."""

    def __init__(self, rows):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".csv")
        self.file.write(HEADER)
        for time, row in enumerate(rows):
            self.file.write(f"{time},{row}\n")
        self.file.flush()

    def __enter__(self):
        return self.file.name

    def __exit__(self, *_):
        self.file.close()
