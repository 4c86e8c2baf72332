#!/usr/bin/env python3
"""rmm_suite.py FOLDER CHECKOUT [--only NAME,...] [--timeout S] [PYTEST-OPTION...]

RMM's own Python tests, python/rmm/rmm/tests of a checkout of github.com/rapidsai/rmm, with RMM's CudaMemoryResource
and with emm in its place (rmm_on_emm.py); then what failed with RMM's own, and what passes with it and not with emm, each with the reason. The
checkout is only read; its tests should be of the release of RMM that is installed. pytest and numba-cuda are needed.
Ends with 1 if a run was cut off, if emm served nothing, or if a test passes with RMM's own and not with emm.
"""
import argparse
import collections
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RESOURCES = {
    "rmm": {"RMM_SUITE_ON": "native"},
    "passthrough": {"RMM_SUITE_ON": "emm", "EMM_PLUGIN": "passthrough"},
    "async": {"RMM_SUITE_ON": "emm", "EMM_PLUGIN": "async"},
    "pool": {"RMM_SUITE_ON": "emm", "EMM_PLUGIN": "pool"},
}
OWN = "rmm"


def worst(phases):
    """A test fails in any of its phases, and is skipped in any; else it has passed."""
    for outcome in "failed", "skipped":
        for phase in phases:
            if phase.get("outcome") == outcome:
                return outcome, phase.get("reason", "")
    return "passed", ""


def summary(text):
    """What the lines of one run say: of each test the outcome and why, and how many asked emm for memory."""
    phases, reached, finished = collections.defaultdict(list), 0, False
    for line in map(json.loads, text.splitlines()):
        if line["phase"] == "finished":
            finished = True
        elif line["phase"] == "end":
            reached += line["allocations"] > 0
        else:
            phases[line["test"]].append(line)
    # The last test of a run that was cut off has not ended.
    if not finished and phases and not any(line["phase"] in ("teardown", "import") for line in
                                           phases[list(phases)[-1]]):
        phases[list(phases)[-1]].append({"outcome": "failed", "reason": "the process ended in this test"})
    return {"tests": {test: worst(found) for test, found in phases.items()}, "reached": reached,
            "finished": finished}


def differences(own, other):
    """(test, reason) of each that passes with RMM's own resource and not with the other one."""
    return [(test, reason or outcome) for test, (outcome, reason) in other["tests"].items()
            if outcome != "passed" and own["tests"].get(test, ("", ""))[0] == "passed"] + \
        [(test, "it did not run") for test, (outcome, _) in own["tests"].items()
         if outcome == "passed" and test not in other["tests"]]


def run(folder, tests, name, options, timeout):
    log, said = folder / f"rmm-suite-{name}.jsonl", folder / f"rmm-suite-{name}.log"
    log.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    begin = time.monotonic()
    with open(said, "w", encoding="utf-8") as file:
        try:
            subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "rmm_on_emm",
                            "--continue-on-collection-errors", *options,
                            str(tests)], stdout=file, stderr=subprocess.STDOUT, timeout=timeout, check=False,
                           env={**os.environ, **RESOURCES[name], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1",
                                "RMM_SUITE_LOG": str(log)})
        except subprocess.TimeoutExpired:
            pass
    found = summary(log.read_text() if log.is_file() else "")
    found["seconds"] = time.monotonic() - begin
    return found


def table(results):
    print("| resource | tests | passed | failed | skipped | allocate by emm | seconds |\n|---|---|---|---|---|---|---|")
    for name, found in results.items():
        counts = collections.Counter(outcome for outcome, _ in found["tests"].values())
        print(f"| {name}{'' if found['finished'] else ' (cut off)'} | {len(found['tests'])} | {counts['passed']} "
              f"| {counts['failed']} | {counts['skipped']} | {found['reached']} | {found['seconds']:.0f} |")


def test_function(test):
    """A test's name without its parameters."""
    return test.partition("[")[0]


def reasons(outcomes):
    """One line for each test function and reason, which may differ in numbers; parameters are counted."""
    alike = collections.defaultdict(list)
    for test, reason in outcomes:
        alike[test_function(test), re.sub(r"0x[0-9a-f]+|\d+", "N", reason)[:160]].append(reason)
    return [f"{test}{f' ({len(found)} times)' if len(found) > 1 else ''}: {found[0]}"
            for (test, _), found in sorted(alike.items())]


def obstacle(tests):
    """What keeps the suite from running, or None."""
    for module in "rmm", "pytest", "numba":
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    return None if tests.is_dir() else f"there is no {tests}"


def versions(checkout):
    import rmm
    version = checkout / "VERSION"
    of_tests = version.read_text().strip() if version.is_file() else "an unknown release"
    print(f"RMM {rmm.__version__}, tests of {of_tests}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(RESOURCES))
    parser.add_argument("--timeout", type=float, default=300)
    wish, options = parser.parse_known_args()
    tests = wish.checkout / "python/rmm/rmm/tests"
    reason = obstacle(tests)
    if reason:
        print(f"skipped: RMM's own tests: {reason}")
        return 77
    versions(wish.checkout)
    folder = wish.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results = {name: run(folder, tests, name, options, wish.timeout) for name in wish.only.split(",")}
    table(results)
    good = all(found["finished"] and found["tests"] for found in results.values())
    for name, found in results.items():
        if name == OWN or OWN not in results:
            told = [(test, reason) for test, (outcome, reason) in found["tests"].items() if outcome == "failed"]
        else:
            told = differences(results[OWN], found)
            good = good and not told
        for line in reasons(told):
            print(f"{name}: {line}")
        good = good and (name == OWN or found["reached"] > 0)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
