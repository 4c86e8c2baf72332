#!/usr/bin/env python3
"""rmm_suite_test.py GPU: what rmm_suite.py in the folder GPU counts of the runs of RMM's own tests."""
import json
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))

import rmm_suite


def lines(*found):
    return "\n".join(json.dumps(line) for line in found)


def phase(test, name, outcome, reason=""):
    return {"test": test, "phase": name, "outcome": outcome, "reason": reason}


def phases(test, outcome, reason=""):
    return [phase(test, "setup", "passed"), phase(test, "call", outcome, reason), phase(test, "teardown", "passed")]


FINISHED = phase("", "finished", "1")


class Suite(unittest.TestCase):
    def test_a_test_fails_if_its_setup_or_teardown_does(self):
        found = rmm_suite.summary(lines(phase("a", "setup", "failed", "no memory"), *phases("b", "passed"),
                                        phase("c", "call", "passed"), phase("c", "teardown", "failed", "leaks"),
                                        *phases("d", "skipped", "no cupy"), FINISHED))
        self.assertEqual({"a": ("failed", "no memory"), "b": ("passed", ""), "c": ("failed", "leaks"),
                          "d": ("skipped", "no cupy")}, found["tests"])
        self.assertTrue(found["finished"])

    def test_a_run_that_was_cut_off_fails_in_its_last_test(self):
        begun = rmm_suite.summary(lines(*phases("a", "passed"), phase("b", "setup", "passed")))
        self.assertEqual((False, "passed", "failed"),
                         (begun["finished"], begun["tests"]["a"][0], begun["tests"]["b"][0]))
        between = rmm_suite.summary(lines(*phases("a", "passed")))
        self.assertEqual((False, "passed"), (between["finished"], between["tests"]["a"][0]))

    def test_it_counts_the_tests_that_allocate_and_not_their_allocations(self):
        found = rmm_suite.summary(lines({"test": "a", "phase": "end", "allocations": 3},
                                        {"test": "b", "phase": "end", "allocations": 0}, FINISHED))
        self.assertEqual(1, found["reached"])

    def test_a_difference_is_what_passes_with_rmms_own_and_not_with_emm(self):
        own = rmm_suite.summary(lines(*phases("same", "passed"), *phases("both", "failed", "x"),
                                      *phases("fails", "passed"), *phases("skips", "passed"),
                                      *phases("missing", "passed"), *phases("mended", "failed"), FINISHED))
        emm = rmm_suite.summary(lines(*phases("same", "passed"), *phases("both", "failed", "y"),
                                      *phases("fails", "failed", "why"), *phases("skips", "skipped", "not here"),
                                      *phases("mended", "passed"), FINISHED))
        self.assertEqual([("fails", "why"), ("skips", "not here"), ("missing", "it did not run")],
                         rmm_suite.differences(own, emm))

    def test_reasons_that_differ_in_numbers_are_told_once_and_counted(self):
        self.assertEqual(["t: asks for 7 bytes", "u (2 times): asks for 5 bytes"],
                         rmm_suite.reasons([("u[a]", "asks for 5 bytes"), ("u[b]", "asks for 6 bytes"),
                                            ("t[a]", "asks for 7 bytes")]))


if __name__ == "__main__":
    unittest.main()
