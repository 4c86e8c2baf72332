#!/usr/bin/env python3
"""PyTorch's own tests of its CUDA allocator, on PyTorch's allocator and on emm. Needs a GPU.

    torch_suite_clients.py FOLDER [--only EXPRESSION] [--on ALLOCATOR,...] [--limit SECONDS]

EMM_TEST_TORCH_SUITE names the folder `test` of PyTorch's source, with test_cuda.py in it; nothing of it is
part of emm. A release other than the installed PyTorch's will do: what PyTorch's own allocator fails does
not count. EXPRESSION chooses tests by their names; without it those about memory and graphs run.
ALLOCATOR is a plugin of emm's; after `pinned+` it serves PyTorch's pinned memory alone. A test that
ends its process is counted as a failure, and the tests after it run in a new process.

It prints the tests that pass on PyTorch's allocator and not on emm, with what they say.
"""
import argparse
import dataclasses
import importlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

NATIVE = "native"
PINNED = "pinned+"
ABOUT_MEMORY = (r"alloc|memory|oom|out_of|caching|cached|pool|graph|snapshot|segment|absor|garbage|gc_|stream|"
                r"record|event|checkpoint|pin|ipc|mempool|BlockState|MemPool|MallocAsync")
PASSED, SKIPPED, FAILED, ENDED = "passed", "skipped", "failed", "ended the process"


@dataclasses.dataclass(frozen=True)
class Outcome:
    what: str
    why: str = ""


def flattened(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flattened(test)
        else:
            yield test


class Recorder(unittest.TestResult):
    """A line of JSON as a test begins, and one for its outcome: what a killed process leaves can be read."""

    def __init__(self, file):
        super().__init__()
        self.file = file
        self.outcome = None

    def write(self, **line):
        print(json.dumps(line), file=self.file, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.outcome = Outcome(PASSED)
        self.write(begins=test.id())

    def failed(self, error):
        self.outcome = Outcome(FAILED, f"{error[0].__name__}: {error[1]}"[:300])

    def addError(self, test, err):
        super().addError(test, err)
        if self.outcome is None:  # for a class or a module, before its tests
            self.write(begins=test.id())
            self.write(ends=test.id(), what=FAILED, why=str(err[1])[:300])
        else:
            self.failed(err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.failed(err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed(err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = Outcome(SKIPPED, reason)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = Outcome(FAILED, "passed, which was not expected")

    def stopTest(self, test):
        self.write(ends=test.id(), **dataclasses.asdict(self.outcome))
        self.outcome = None
        super().stopTest(test)


def run_child(allocator, module, log, names):
    """The process that tests: uses the allocator, then runs the tests of these names, or lists all."""
    if allocator != NATIVE:
        import emm.torch
        (emm.torch.use_pinned_memory if allocator.startswith(PINNED) else emm.torch.use)()
    tests = list(flattened(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))))
    if not names:
        print("\n".join(test.id() for test in tests))
        return
    with open(log, "a", encoding="utf-8") as file:
        recorder = Recorder(file)
        unittest.TestSuite(test for test in tests if test.id() in names).run(recorder)


def start_child(allocator, module, log="-", names=(), limit=None):
    """Its output, which only counts for a list of names. Ends it after `limit` seconds."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1",
                   "PYTORCH_DISABLE_RUNNING_SCRIPT_CHK": "1"}  # the tests are not the program
    environment["PYTHONPATH"] = f"{os.environ['EMM_TEST_TORCH_SUITE']}:{os.environ.get('PYTHONPATH', '')}"
    if allocator != NATIVE:
        environment["EMM_PLUGIN"] = allocator.removeprefix(PINNED)
    command = [sys.executable, __file__, "--child", allocator, module, log]
    try:
        return subprocess.run(command, input="\n".join(names), env=environment, text=True, capture_output=True,
                              check=False, timeout=limit)
    except subprocess.TimeoutExpired as expired:
        return subprocess.CompletedProcess(command, -9, "", f"it was ended after {expired.timeout:.0f} s")


def read_outcomes(text):
    """The results in the lines of a process. If a test began and did not end, the process ended there."""
    found, begun = {}, None
    for line in text.splitlines():
        told = json.loads(line)
        if "begins" in told:
            begun = told["begins"]
        else:
            found[told["ends"]] = Outcome(told["what"], told["why"])
            begun = None
    if begun:
        found[begun] = Outcome(ENDED)
    return found


def run_tests(allocator, module, log, names, limit, start=start_child):
    """The outcome of each name; a process that ends early is followed by another for the rest."""
    outcomes = {}
    while rest := [name for name in names if name not in outcomes]:
        log.write_text("")
        done = start(allocator, module, str(log), rest, limit)
        found = read_outcomes(log.read_text(encoding="utf-8"))
        last = (done.stderr.strip().splitlines() or [""])[-1]
        why = f"status {done.returncode}: {last}"[:300]
        if not found:
            found = {name: Outcome(FAILED, f"its process ran no test, {why}") for name in rest}
        for name, outcome in found.items():
            outcomes[name] = outcome if outcome.what != ENDED else Outcome(ENDED, why)
        if done.returncode == 0:  # the rest is not in the module
            break
    return outcomes


def worse(native, other):
    """Tests that pass natively and not on the other allocator."""
    return {name: other.get(name, Outcome(FAILED, "it did not run")) for name, outcome in native.items()
            if outcome.what == PASSED and other.get(name, Outcome(FAILED)).what != PASSED}


def counted(outcomes):
    kinds = [outcome.what for outcome in outcomes.values()]
    return " | ".join(str(kinds.count(kind)) for kind in (PASSED, FAILED, ENDED, SKIPPED))


def compare(args, module, names):
    print("| allocator | passed | failed | ended its process | skipped |\n|---|---|---|---|---|", flush=True)
    outcomes = {}
    for allocator in [NATIVE, *args.on.split(",")]:
        log = args.folder / re.sub("[:=+]", "-", f"torch-suite-{allocator}.jsonl")
        outcomes[allocator] = run_tests(allocator, module, log, names, args.limit)
        print(f"| {allocator} | {counted(outcomes[allocator])} |", flush=True)
    for allocator in args.on.split(","):
        found = worse(outcomes[NATIVE], outcomes[allocator])
        print(f"\n{allocator}: {len(found)} that pass natively do not pass")
        for name, outcome in sorted(found.items()):
            print(f"- {name}: {outcome.what}: {' '.join(outcome.why.split())}")
    if PASSED not in {outcome.what for outcome in outcomes[NATIVE].values()}:
        print("no test passes on PyTorch's own allocator, so nothing is compared")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default=ABOUT_MEMORY)
    parser.add_argument("--on", default="pool,pool:growth=segment")
    parser.add_argument("--limit", type=float, default=240, help="seconds for a process")
    args = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("skipped: torch is not installed")
        return 77
    suite = os.environ.get("EMM_TEST_TORCH_SUITE", "")
    if not suite or not pathlib.Path(suite, "test_cuda.py").is_file():
        print("skipped: EMM_TEST_TORCH_SUITE names no folder with PyTorch's test_cuda.py")
        return 77
    module = "test_cuda"
    listed = start_child(NATIVE, module)
    names = [name for name in listed.stdout.splitlines()
             if name.startswith(f"{module}.") and re.search(args.only, name.split(".", 1)[1])]
    if not names:
        print(f"{module} has no test of such a name: {(listed.stdout + listed.stderr)[-2000:]}")
        return 1
    return compare(args, module, names)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        run_child(*sys.argv[2:5], set(sys.stdin.read().split()))
    else:
        sys.exit(main())
