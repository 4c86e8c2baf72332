#!/usr/bin/env python3
"""pytest_suite_test.py GPU: what pytest_suite.py in the folder GPU counts of the runs of other people's tests."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, sys.argv.pop(1))

import pytest_suite
import sample_programs
import suites_clients

# Stands for pytest: its tests are lines of the file that it is given, each with what the test does natively and under emm run.
PYTEST = """
import json, os, sys
log = os.environ["PYTEST_OUTCOMES"]
known = {json.loads(line)["test"] for line in open(log)} if os.path.exists(log) else ()
is_served = "UNDER_EMM" in os.environ
def write(test, phase, outcome, **more):
    with open(log, "a") as file:
        file.write(json.dumps({"test": test, "phase": phase, "outcome": outcome, "reason": "", **more}) + "\\n")
for line in open(sys.argv[-1]):
    test, natively, served = line.split()
    does = served if is_served else natively
    if test not in known:
        write(test, "setup", "passed")
        if does == "ends":
            os._exit(7)
        write(test, "call", does)
        write(test, "teardown", "passed")
write("", "finished", "1", served=3 * is_served)
"""
EMM = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
UNDER_EMM=1 exec "$@"
"""


def lines(*found):
    return "\n".join(json.dumps(line) for line in found)


def phase(test, name, outcome, reason=""):
    return {"test": test, "phase": name, "outcome": outcome, "reason": reason}


def phases(test, outcome, reason=""):
    return [phase(test, "setup", "passed"), phase(test, "call", outcome, reason), phase(test, "teardown", "passed")]


FINISHED = {**phase("", "finished", "1"), "served": 3}


class Suite(unittest.TestCase):
    def test_a_test_fails_if_its_setup_or_teardown_does(self):
        found = pytest_suite.summary(lines(phase("a", "setup", "failed", "no memory"), *phases("b", "passed"),
                                        phase("c", "call", "passed"), phase("c", "teardown", "failed", "leaks"),
                                        *phases("d", "skipped", "no cupy"), FINISHED))
        self.assertEqual({"a": ("failed", "no memory"), "b": ("passed", ""), "c": ("failed", "leaks"),
                          "d": ("skipped", "no cupy")}, found["tests"])
        self.assertTrue(found["finished"])

    def test_a_run_that_was_cut_off_fails_in_its_last_test(self):
        begun = pytest_suite.summary(lines(*phases("a", "passed"), phase("b", "setup", "passed")))
        self.assertEqual((False, "passed", "failed"),
                         (begun["finished"], begun["tests"]["a"][0], begun["tests"]["b"][0]))
        between = pytest_suite.summary(lines(*phases("a", "passed")))
        self.assertEqual((False, "passed"), (between["finished"], between["tests"]["a"][0]))

    def test_a_run_in_which_emm_served_nothing_is_not_good(self):
        own = pytest_suite.summary(lines(*phases("a", "passed"), {**FINISHED, "served": 0}))
        served = pytest_suite.summary(lines(*phases("a", "passed"), FINISHED))
        with contextlib.redirect_stdout(io.StringIO()):
            found = [pytest_suite.compare("suite", {"natively": {**own, "seconds": 1}, "pool": {**other, "seconds": 1}})
                     for other in (served, own)]
        self.assertEqual([True, False], found)

    def test_a_difference_is_what_passes_without_emm_and_not_with_it(self):
        own = pytest_suite.summary(lines(*phases("same", "passed"), *phases("both", "failed", "x"),
                                      *phases("fails", "passed"), *phases("skips", "passed"),
                                      *phases("missing", "passed"), *phases("mended", "failed"), FINISHED))
        emm = pytest_suite.summary(lines(*phases("same", "passed"), *phases("both", "failed", "y"),
                                      *phases("fails", "failed", "why"), *phases("skips", "skipped", "not here"),
                                      *phases("mended", "passed"), FINISHED))
        self.assertEqual([("fails", "why"), ("skips", "not here"), ("missing", "it did not run")],
                         pytest_suite.differences(own, emm))

    def test_reasons_that_differ_in_numbers_are_told_once_and_counted(self):
        self.assertEqual(["t: asks for 7 bytes", "u (2 times): asks for 5 bytes"],
                         pytest_suite.reasons([("u[a]", "asks for 5 bytes"), ("u[b]", "asks for 6 bytes"),
                                            ("t[a]", "asks for 7 bytes")]))


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "pytest.py").write_text(PYTEST)
        self.emm = self.folder / "emm"
        self.emm.write_text(EMM)
        self.emm.chmod(0o755)

    def write(self, *tests):
        (self.folder / "tests").write_text("".join(test + "\n" for test in tests))

    def suites(self, *suites, options=()):
        """The exit status of the section, and what it prints."""
        told = io.StringIO()
        with contextlib.redirect_stdout(told), unittest.mock.patch.multiple(
                suites_clients, SUITES=list(suites), EMM=self.emm, find_spec=lambda module: None if module == "absent" else module), \
                unittest.mock.patch.dict(os.environ, EMM_TEST_SUITES=str(self.folder), PYTHONPATH=str(self.folder)), \
                unittest.mock.patch.object(sys, "argv", ["suites", str(self.folder / "out"), *options]):
            status = suites_clients.main()
        return status, told.getvalue()

    def suite(self, **more):
        return suites_clients.Suite("Theirs", ("theirs",), ("tests",), **more)

    def test_a_test_that_ends_the_process_fails_and_those_behind_it_run(self):
        self.write("a passed passed", "b ends ends", "c passed passed", "d ends ends", "e failed failed")
        found = pytest_suite.run(self.folder / "log.jsonl", [], [str(self.folder / "tests")], {"PYTHONPATH": str(self.folder)}, 60)
        ended = ("failed", "the process ended in this test")
        self.assertEqual(found["tests"], {"a": ("passed", ""), "b": ended, "c": ("passed", ""), "d": ended, "e": ("failed", "")})
        self.assertTrue(found["finished"])

    def test_pytest_that_does_not_start_is_asked_once(self):
        (self.folder / "pytest.py").write_text("import sys; sys.exit(4)")
        found = pytest_suite.run(self.folder / "log.jsonl", [], ["tests"], {"PYTHONPATH": str(self.folder)}, 60)
        self.assertEqual((found["tests"], found["finished"]), ({}, False))

    def test_the_table_has_a_row_for_each_suite_and_names_what_differs(self):
        self.write("f::same passed passed", "f::worse[1] passed failed", "f::worse[2] passed failed", "f::both failed failed")
        status, told = self.suites(self.suite())
        self.assertEqual(status, 1)
        self.assertIn("| suite | natively | passthrough | pool | pool:growth=segment | async | pool, --limit 8GiB |\n", told)
        self.assertIn("| Theirs | 3 passed, 1 failed | 1 passed, 3 failed; differs: worse |", told)

    def test_what_differs_for_a_known_reason_is_no_failure_and_is_marked(self):
        self.write("f::same passed passed", "f::worse passed failed")
        known = self.suite(differs=((("worse",), "", "CUDA's own pool"),))
        self.assertEqual(self.suites(known)[0], 0)
        self.assertIn("1 passed, 1 failed; differs: worse (known)", self.suites(known)[1])
        self.assertIn("f::worse: failed (known: CUDA's own pool)", self.suites(known)[1])
        elsewhere = self.suite(differs=((("worse",), "passthrough", "keeps no freed memory"),))
        self.assertEqual(self.suites(elsewhere)[0], 1)

    def test_ways_can_be_chosen_beside_the_native_one(self):
        self.write("a passed passed")
        told = self.suites(self.suite(), options=("--on", "pool", "--on", "pool, --limit 8GiB"))[1]
        self.assertIn("| suite | natively | pool | pool, --limit 8GiB |\n", told)

    def test_suites_that_cannot_run_are_skipped_by_name(self):
        self.write("a passed passed")
        missing = suites_clients.Suite("Absent", ("absent",))
        status, told = self.suites(self.suite(), missing)
        self.assertEqual(status, 0, told)
        self.assertIn("skipped: Absent: absent is not installed", told)
        self.assertIn("| Theirs | 1 passed, 0 failed | 1 passed, 0 failed; as natively |", told)
        self.assertEqual(self.suites(missing)[0], 77)

    def test_checkouts_are_of_the_release_that_is_installed(self):
        called = []
        with unittest.mock.patch("importlib.metadata.version", return_value="26.10.0+cu13"), \
                unittest.mock.patch("importlib.metadata.packages_distributions", return_value={"rmm": ["rmm-cu13"]}), \
                unittest.mock.patch("subprocess.run", lambda words, check: called.append([str(word) for word in words])):
            suites_clients.clone(suites_clients.SOURCES["rmm"], self.folder / "rmm")
        self.assertEqual([words[:2] for words in called], [["git", "clone"], ["git", "-C"]])
        self.assertIn("v26.10.00", called[0])
        self.assertEqual(called[1][-1], "python/rmm/rmm/tests")

    def test_a_sample_has_passed_if_it_ends_well_and_is_served_if_emm_has_statistics(self):
        log = "import os; open(os.environ['EMM_LOG'].partition(':')[2], 'w').write('emm: \\n  context  plugin  allocations\\n')"
        for name, text in (("good.py", log), ("bad.py", "print('why'); raise SystemExit(3)")):
            (self.folder / name).write_text(text)
        found = sample_programs.run(self.folder / "log.jsonl", [], [self.folder / "bad.py", self.folder / "good.py"], 60)
        folder = self.folder.name
        self.assertEqual(found["tests"], {f"{folder}/bad.py": ("failed", "status 3: why"), f"{folder}/good.py": ("passed", "")})
        self.assertEqual((found["served"], found["finished"]), (1, True))
        self.assertFalse(sample_programs.run(self.folder / "log.jsonl", [], [self.folder / "bad.py"], 0)["finished"])


if __name__ == "__main__":
    unittest.main()
