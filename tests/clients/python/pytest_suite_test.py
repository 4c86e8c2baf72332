#!/usr/bin/env python3
"""pytest_suite_test.py GPU: what pytest_suite.py in the folder GPU counts of the runs of other people's tests."""
import contextlib
import io
import json
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))

import pytest_suite


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


if __name__ == "__main__":
    unittest.main()
