#!/usr/bin/env python3
"""ring_test.py BUILD: many processes in one budget, in short, and what ring.py complains of."""
import collections
import contextlib
import io
import json
import os
import re
import signal
import sys
import types
import unittest

os.environ.setdefault("EMM_DRIVER", "sim")
import ring  # noqa: E402

BUILD = sys.argv.pop(1)


def run(*words, processes=8, seconds=20, timeout=60):
    """The exit status, what is complained of, and the counts."""
    told, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(errors):
        status = ring.main(["--build", BUILD, "--processes", str(processes), "--seconds", str(seconds), "--timeout", str(timeout), *words])
    return status, errors.getvalue(), json.loads(told.getvalue().splitlines()[-1])


class Ring(unittest.TestCase):
    def test_processes_share_a_budget_and_a_ring_while_they_are_paused_and_killed(self):
        status, errors, counts = run()
        self.assertEqual((status, errors), (0, ""))
        self.assertLessEqual(counts["most_taken_mib"], counts["limit_mib"])

    def test_processes_on_plugins_that_cannot_pause_are_killed_alone(self):
        for plugin, limit in (("passthrough", "64"), ("async:ipc=1", "288")):  # a pool of CUDA's grows by 32 MiB
            with self.subTest(plugin=plugin):
                self.assertEqual(run("--plugin", plugin, "--pausers", "0", "--limit", limit, seconds=5)[:2], (0, ""))


class Complaints(unittest.TestCase):
    """Each fault of one member is told."""

    def complaint(self, fault, timeout=60):
        status, errors, _ = run("--fault", fault, "--kills", "0.01", "--pausers", "0", processes=3, seconds=6, timeout=timeout)
        self.assertEqual(status, 1)
        return errors

    def test_memory_that_is_not_as_written(self):
        self.assertRegex(self.complaint("content"), "member 1, .* the memory of the member before it, which lives, is not what")

    def test_more_than_the_budget(self):
        self.assertRegex(self.complaint("over"), r"the members have \d+ bytes, and the budget is \d+")

    def test_a_member_that_hangs_and_where(self):
        self.assertRegex(self.complaint("hang", timeout=4), r"(?s)member 0, process \d+, hangs while \w+:\n.*pause")

    def test_a_member_that_leaves(self):
        self.assertRegex(self.complaint("leave"), r"member 0, process \d+, ended with status 0")

    def test_a_file_that_is_left(self):
        self.assertIn("a file is left: tmp/left", self.complaint("file"))

    def test_a_process_that_is_left(self):
        errors = self.complaint("child")
        left = re.search(r"process (\d+) is left", errors)
        self.assertTrue(left, errors)
        os.kill(int(left[1]), signal.SIGKILL)


class Verdicts(unittest.TestCase):
    def crowd(self, used=0, taken=0, processes=2, device_bytes=0):
        crowd = ring.Crowd.__new__(ring.Crowd)
        crowd.wish = types.SimpleNamespace(limit=1024, processes=2, pausers=1)
        crowd.wrong, crowd.counts = [], collections.Counter()
        crowd.monitor, crowd.before, crowd.of_contexts = types.SimpleNamespace(used=lambda: used), 0, 0
        crowd.members = []
        crowd.ask_again = lambda members: 2 * device_bytes
        crowd.taken = lambda: (taken, processes)
        return crowd

    def compared(self, **figures):
        crowd = self.crowd(**figures)
        crowd.compare()
        return crowd.wrong

    def test_what_the_devices_have_and_emm_does_not_count(self):
        self.assertEqual(self.compared(taken=200, device_bytes=100), [])
        self.assertRegex(self.compared(taken=199, device_bytes=100)[0], "200 bytes in use, and emm counts 199")

    def test_what_a_gpu_has_beyond_contexts_and_budget(self):
        self.assertEqual(self.compared(used=2 * ring.LATE + 9, taken=9), [])
        self.assertRegex(self.compared(used=2 * ring.LATE + 10, taken=9)[0], "the device has")

    def test_a_dead_member_that_is_still_counted(self):
        self.assertRegex(self.compared(processes=3)[0], "3 processes, and there are 2")

    def test_a_part_of_the_budget_that_does_not_come_back(self):
        crowd = self.crowd()
        for filled in (1024, 1013 - 31):
            crowd.judge_fill("now", filled, 1024)
        self.assertEqual(crowd.wrong, [])
        crowd.judge_fill("now", 1013 - 33, 1024)
        crowd.judge_fill("now", 1025, 1024)
        self.assertEqual(len(crowd.wrong), 2)

    def test_a_run_in_which_nothing_happened(self):
        crowd = self.crowd()
        crowd.judge_counts()
        self.assertIn("killed: none, so the run shows nothing", crowd.wrong)


if __name__ == "__main__":
    unittest.main(verbosity=2)
