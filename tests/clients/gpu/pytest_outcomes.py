"""A plugin of pytest's that writes what each test did.

    PYTEST_OUTCOMES=FILE python3 -m pytest -p pytest_outcomes ...

FILE gets a line of JSON for each phase of each test, and in the end one with the allocations that emm has served in
this process: 0 in one that has no libemm. Tests that FILE knows already are left out: a run that a test has ended goes
on behind that one.
"""
import ctypes
import json
import os


def write(**line):
    with open(os.environ["PYTEST_OUTCOMES"], "a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def name_of(one):
    """The name of an item or a report. Outside of pytest's root the path is missing."""
    return one.nodeid if not one.nodeid.startswith("::") else os.path.basename(one.location[0]) + one.nodeid


def served():
    try:
        ctypes.CDLL("libemm.so.1", os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return 0
    import emm
    return emm.stats(emm.context_for_device(0)).allocations


def reason_of(report):
    """The last line that says why, of what did not pass."""
    if isinstance(report.longrepr, tuple):  # of a skip: file, line and reason
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0 if crash else -1][:200] if lines else ""


def pytest_runtest_logreport(report):
    write(test=name_of(report), phase=report.when, outcome=report.outcome, reason=reason_of(report))


def pytest_collection_modifyitems(config, items):
    try:
        with open(os.environ["PYTEST_OUTCOMES"], encoding="utf-8") as log:
            known = {json.loads(line)["test"] for line in log}
    except OSError:
        return
    config.hook.pytest_deselected(items=[item for item in items if name_of(item) in known])
    items[:] = [item for item in items if name_of(item) not in known]


def pytest_collectreport(report):
    """A file that cannot be imported counts as one test."""
    if report.failed:
        write(test=report.nodeid, phase="import", outcome="failed", reason=reason_of(report))


def pytest_sessionfinish(exitstatus):
    write(test="", phase="finished", outcome=str(int(exitstatus)), served=served())
