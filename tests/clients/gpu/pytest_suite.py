"""Other people's tests by pytest: one run of them, and what passes in one way and not in another."""
import collections
import contextlib
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
            finished, served = True, served + line["served"]
        else:
            phases[line["test"]].append(line)
    if last := None if finished else test_that_has_not_ended(phases):
        phases[last].append(end_of(last))
    return {"tests": {test: worst(found) for test, found in phases.items()}, "served": served, "finished": finished}


def test_that_has_not_ended(phases):
    """The last test of a run that was cut off; None: the run was cut off between two tests."""
    last = list(phases)[-1] if phases else None
    return last if last and not any(line["phase"] in ("teardown", "import", "end") for line in phases[last]) else None


def end_of(test):
    return {"test": test, "phase": "end", "outcome": "failed", "reason": "the process ended in this test"}


def differences(own, other):
    """(test, reason) of each that passes in the first run and not in the other one."""
    return [(test, reason or outcome) for test, (outcome, reason) in other["tests"].items()
            if outcome != "passed" and own["tests"].get(test, ("", ""))[0] == "passed"] + \
        [(test, "it did not run") for test, (outcome, _) in own["tests"].items()
         if outcome == "passed" and test not in other["tests"]]


def run(log, prefix, options, environment, timeout, plugin="pytest_outcomes"):
    """Pytest behind the words of `prefix`, with `options`; what it prints goes beside `log`. A test that ends the process has
    failed, and another process goes on behind it."""
    log.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, [str(HERE), environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]))
    begin, told = time.monotonic(), -1
    command = [*prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin,
               "--continue-on-collection-errors", *options]
    variables = {**os.environ, **environment, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_OUTCOMES": str(log)}
    with open(log.with_suffix(".log"), "w", encoding="utf-8") as file, contextlib.suppress(subprocess.TimeoutExpired):
        while told < size_of(log) and not is_finished(log):
            told = size_of(log)
            subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False, env=variables,
                           timeout=begin + timeout - time.monotonic())
            mark_end(log)
    found = summary(log.read_text() if log.is_file() else "")
    found["seconds"] = time.monotonic() - begin
    return found


def size_of(log):
    return log.stat().st_size if log.is_file() else 0


def is_finished(log):
    return log.is_file() and any(json.loads(line)["phase"] == "finished" for line in log.read_text().splitlines())


def mark_end(log):
    """Notes the test that has ended the process, so that the next process leaves the test out."""
    phases = collections.defaultdict(list)
    for line in map(json.loads, log.read_text().splitlines() if log.is_file() else []):
        phases[line["test"]].append(line)
    if "" not in phases and (last := test_that_has_not_ended(phases)):
        with open(log, "a", encoding="utf-8") as file:
            file.write(json.dumps(end_of(last)) + "\n")


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


def no_reason(_way, _test):
    return ""


def compare(suite, results, reason_for=no_reason):
    """Prints a row for each way, the first of which is without emm, then what differs; whether nothing does that has no known
    reason."""
    (first, own), *others = results.items()
    good = own["finished"] and any(outcome == "passed" for outcome, _ in own["tests"].values())
    for way, found in results.items():
        print(row(suite, way, found), flush=True)
    for line in reasons((test, why) for test, (outcome, why) in own["tests"].items() if outcome == "failed"):
        print(f"{suite}, {first}: {line}")
    for way, found in others:
        told = differences(own, found)
        for line in reasons((test, f"{why} (known: {known})" if (known := reason_for(way, test)) else why) for test, why in told):
            print(f"{suite}, {way}: {line}")
        good = good and found["finished"] and found["served"] > 0 and all(reason_for(way, test) for test, _ in told)
    return good


def cell(own, found, way="", reason_for=no_reason):
    """The cell of one way of a suite, with the names of the tests that differ from the first way."""
    counts = collections.Counter(outcome for outcome, _ in found["tests"].values())
    text = f"{counts['passed']} passed, {counts['failed']} failed{'' if found['finished'] else ', cut off'}"
    if found is own:
        return text
    told = {name_of(test): bool(reason_for(way, test)) for test, _ in differences(own, found)}
    names = ", ".join(f"{name} (known)" if known else name for name, known in sorted(told.items()))
    return f"{text}; differs: {names}" if told else f"{text}; as natively"


def name_of(test):
    """Without its file, class and parameters."""
    return test_function(test).rpartition("::")[2]


def table(results, reasons_for):
    """One row for each suite, by its name; one column for each way. `reasons_for` has the function of each suite."""
    ways = list(dict.fromkeys(way for found in results.values() for way in found))
    lines = ["| suite | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for suite, found in results.items():
        own = next(iter(found.values()))
        lines.append(f"| {suite} | " + " | ".join(cell(own, found[way], way, reasons_for[suite]) if way in found else "" for way in ways) + " |")
    return "\n".join(lines)
