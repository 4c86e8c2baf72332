#!/usr/bin/env python3
"""torch_suite_test.py GPU: how torch_suite_clients.py in the folder GPU runs a suite, and what it compares."""
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))

import torch_suite_clients as suite
from torch_suite_clients import Outcome


class Sample(unittest.TestCase):
    def passes(self):
        pass

    def fails(self):
        self.assertEqual("one", "two")

    def raises(self):
        raise MemoryError("no\nmemory")

    def is_skipped(self):
        self.skipTest("no GPU")

    def fails_in_part(self):
        with self.subTest("second"):
            self.fail("in part")


def lines(*told):
    return "".join(json.dumps(line) + "\n" for line in told)


def ended(name, what=suite.PASSED):
    return [{"begins": name}, {"ends": name, "what": what, "why": ""}]


class Recorded(unittest.TestCase):
    def outcome(self, name):
        file = io.StringIO()
        unittest.TestSuite([Sample(name)]).run(suite.Recorder(file))
        (found,) = suite.read_outcomes(file.getvalue()).values()
        return found

    def test_each_outcome_is_told_with_its_reason(self):
        self.assertEqual(Outcome(suite.PASSED), self.outcome("passes"))
        self.assertEqual(Outcome(suite.SKIPPED, "no GPU"), self.outcome("is_skipped"))
        self.assertEqual(Outcome(suite.FAILED, "MemoryError: no\nmemory"), self.outcome("raises"))
        self.assertIn("'one' != 'two'", self.outcome("fails").why)
        self.assertEqual(Outcome(suite.FAILED, "AssertionError: in part"), self.outcome("fails_in_part"))

    def test_a_test_that_did_not_end_has_ended_the_process(self):
        found = suite.read_outcomes(lines(*ended("a"), {"begins": "b"}))
        self.assertEqual({"a": Outcome(suite.PASSED), "b": Outcome(suite.ENDED)}, found)


class Processes(unittest.TestCase):
    def run_with(self, names, *processes):
        """The output of processes that are started one after the other."""
        self.asked = []

        def start(_allocator, _module, log, rest, _limit):
            self.asked.append(list(rest))
            pathlib.Path(log).write_text(lines(*processes[len(self.asked) - 1]))
            return subprocess.CompletedProcess([], -11, "", "warning\nSegmentation fault\n")

        with tempfile.TemporaryDirectory() as folder:
            return suite.run_tests("pool", "module", pathlib.Path(folder, "log"), names, 1, start)

    def test_the_tests_behind_one_that_ends_its_process_run_in_another(self):
        found = self.run_with(["a", "b", "c"], [*ended("a"), {"begins": "b"}], ended("c"))
        self.assertEqual([["a", "b", "c"], ["c"]], self.asked)
        self.assertEqual(suite.PASSED, found["c"].what)
        self.assertEqual(Outcome(suite.ENDED, "status -11: Segmentation fault"), found["b"])

    def test_the_tests_behind_a_process_that_ended_between_two_run_too(self):
        found = self.run_with(["a", "b"], ended("a"), ended("b"))
        self.assertEqual([["a", "b"], ["b"]], self.asked)
        self.assertEqual({"a": Outcome(suite.PASSED), "b": Outcome(suite.PASSED)}, found)

    def test_a_process_that_runs_no_test_is_told_once_for_all_of_them(self):
        found = self.run_with(["a", "b"], [])
        self.assertEqual(1, len(self.asked))
        self.assertEqual({suite.FAILED}, {outcome.what for outcome in found.values()})
        self.assertIn("Segmentation fault", found["a"].why)


class Compared(unittest.TestCase):
    def test_what_passes_natively_alone_is_worse_and_nothing_else(self):
        passed, failed, skipped = (Outcome(what) for what in (suite.PASSED, suite.FAILED, suite.SKIPPED))
        native = {"a": passed, "b": passed, "c": failed, "d": skipped, "e": passed, "f": passed}
        other = {"a": passed, "b": failed, "c": failed, "d": failed, "e": skipped}
        self.assertEqual(["b", "e", "f"], sorted(suite.worse(native, other)))


if __name__ == "__main__":
    unittest.main()
