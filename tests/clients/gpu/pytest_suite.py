"""Other people's tests by pytest: one run of them, and what passes in one way and not in another."""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def worst(phases):
    """A test fails in any of its phases, and is skipped in any; else it has passed."""
    for outcome in "failed", "skipped":
        for phase in phases:
            if phase.get("outcome") == outcome:
                return outcome, phase.get("reason", "")
    return "passed", ""


def summary(text):
    """The results in the lines of one run: each test's outcome and reason, and the number of allocations that emm served."""
    phases, served, finished = collections.defaultdict(list), 0, False
    for line in map(json.loads, text.splitlines()):
        if line["phase"] == "finished":
            finished, served = True, line["served"]
        else:
            phases[line["test"]].append(line)
    # The last test of a run that was cut off has not ended.
    if not finished and phases and not any(line["phase"] in ("teardown", "import") for line in
                                           phases[list(phases)[-1]]):
        phases[list(phases)[-1]].append({"outcome": "failed", "reason": "the process ended in this test"})
    return {"tests": {test: worst(found) for test, found in phases.items()}, "served": served, "finished": finished}


def differences(own, other):
    """(test, reason) of each that passes in the first run and not in the other one."""
    return [(test, reason or outcome) for test, (outcome, reason) in other["tests"].items()
            if outcome != "passed" and own["tests"].get(test, ("", ""))[0] == "passed"] + \
        [(test, "it did not run") for test, (outcome, _) in own["tests"].items()
         if outcome == "passed" and test not in other["tests"]]


def run(log, prefix, options, environment, timeout, plugin="pytest_outcomes"):
    """Pytest behind the words of `prefix`, with `options`; what it prints goes beside `log`."""
    log.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    begin = time.monotonic()
    with open(log.with_suffix(".log"), "w", encoding="utf-8") as file:
        try:
            subprocess.run([*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin,
                            "--continue-on-collection-errors", *options], stdout=file, stderr=subprocess.STDOUT,
                           timeout=timeout, check=False,
                           env={**os.environ, **environment, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1",
                                "PYTEST_OUTCOMES": str(log)})
        except subprocess.TimeoutExpired:
            pass
    found = summary(log.read_text() if log.is_file() else "")
    found["seconds"] = time.monotonic() - begin
    return found


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


def row(suite, way, found):
    counts = collections.Counter(outcome for outcome, _ in found["tests"].values())
    return (f"| {suite} | {way}{'' if found['finished'] else ' (cut off)'} | {len(found['tests'])} | {counts['passed']} "
            f"| {counts['failed']} | {counts['skipped']} | {found['served']} | {found['seconds']:.0f} |")


HEADING = ("| suite | way | tests | passed | failed | skipped | allocations by emm | seconds |\n"
           "|---|---|---|---|---|---|---|---|")


def compare(suite, results):
    """Prints a row for each way, the first of which is without emm, then what differs; whether nothing does."""
    (first, own), *others = results.items()
    good = own["finished"] and any(outcome == "passed" for outcome, _ in own["tests"].values())
    for way, found in results.items():
        print(row(suite, way, found), flush=True)
    for line in reasons((test, why) for test, (outcome, why) in own["tests"].items() if outcome == "failed"):
        print(f"{suite}, {first}: {line}")
    for way, found in others:
        told = differences(own, found)
        for line in reasons(told):
            print(f"{suite}, {way}: {line}")
        good = good and found["finished"] and found["served"] > 0 and not told
    return good
