#!/usr/bin/env python3
"""shared_budget_test.py BUILD: what shared_budget.py finds on the simulated driver, and what it would complain of."""
import json
import os
import subprocess
import sys
import types
import unittest

import shared_budget
from shared_budget import LATE, MIB, Group

BUILD = sys.argv.pop(1)


class Monitor:
    def __init__(self, used):
        self.figure = used

    def used(self):
        return self.figure


def group_of(used_mib, counted_mib=0):
    group = Group.__new__(Group)
    group.wish, group.wrong = types.SimpleNamespace(limit=1024), []
    group.members = [types.SimpleNamespace(counts={"grown_mib": 9, "refused": 9, "killed": 9})]
    group.before = group.contexts = group.highest = group.above = group.above_after_kill = group.samples = 0
    group.allowed, group.most_counted, group.monitor = 1024 * MIB + 2 * LATE, counted_mib * MIB, Monitor(used_mib * MIB)
    group.look_at_device(0)
    return group


class Verdict(unittest.TestCase):
    def test_a_device_with_a_byte_more_than_is_allowed_is_complained_of(self):
        self.assertEqual(group_of(1024 + 128).verdict(1024)["wrong"], [])
        self.assertRegex(group_of(1024 + 129).verdict(1024)["wrong"][0], "more in use than allowed in 1 of 1 samples")

    def test_more_counted_than_the_budget_has_is_complained_of(self):
        self.assertIn("counted", group_of(0, 1025).verdict(1024)["wrong"][0])

    def test_a_budget_that_is_not_whole_again_is_complained_of(self):
        self.assertIn("got 900", group_of(0).verdict(900)["wrong"][0])

    def test_a_run_in_which_nothing_was_killed_shows_nothing(self):
        group = group_of(0)
        group.members[0].counts["killed"] = 0
        self.assertIn("killed: none", group.verdict(1024)["wrong"][0])


class OnTheSimulatedDriver(unittest.TestCase):
    def test_two_programs_share_a_budget_while_they_are_killed(self):
        done = subprocess.run([sys.executable, shared_budget.__file__, "--build", BUILD, "--seconds", "5", "--limit", "512"],
                              text=True, capture_output=True, env={**os.environ, "EMM_DRIVER": "sim"}, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertLessEqual(json.loads(done.stdout.splitlines()[-1])["most_counted_mib"], 512)


if __name__ == "__main__":
    unittest.main()
