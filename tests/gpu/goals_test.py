#!/usr/bin/env python3
"""goals_test.py BUILD: what goals.py judges, and what it does on the simulated driver. The programs run on the CPU where
PyTorch is installed (EMM_TEST_TORCH names a Python that has it)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import goals
import plan
import tight_load
from busy_clients import PROGRAMS, summary, trace_of, turns

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PYTHON = os.environ.get("EMM_TEST_TORCH") or sys.executable
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0
POOL, TORCH, EXPANDABLE, RMM, DRIVER, PASSTHROUGH = (goals.POOL, goals.TORCH, goals.EXPANDABLE, goals.RMM, goals.DRIVER,
                                                     "emm passthrough")


def word(unit, **values):
    names = {"pool": POOL, "torch": TORCH, "expandable": EXPANDABLE, "rmm": RMM, "driver": DRIVER, "passthrough": PASSTHROUGH}
    results = [{"allocator": names[name], "case": "any", "unit": unit, "value": value} for name, value in values.items()]
    return goals.judged(results)[0][3]


class Verdict(unittest.TestCase):
    def test_what_is_reserved_has_two_bounds(self):
        for unit in (plan.FOOTPRINT, plan.ROUNDS_FOOTPRINT):
            self.assertEqual(word(unit, pool=1.03, expandable=1.026), "reached")
            self.assertEqual(word(unit, pool=1.031, expandable=1.5), "missed")
            self.assertEqual(word(unit, pool=1.02, expandable=1.014), "missed")
            self.assertEqual(word(unit, pool=1.02), "not known")
            self.assertEqual(word(unit, pool=1.04), "missed")

    def test_cost_is_that_of_the_quickest_of_three(self):
        self.assertEqual(word("ns an event", pool=90, torch=100, expandable=100, rmm=90), "reached")
        self.assertEqual(word("ns an event", pool=91, torch=100, expandable=100, rmm=90), "missed")
        self.assertEqual(word("ns an event", pool=90, torch=100, expandable=100), "not known")

    def test_a_failure_is_forgiven_where_the_driver_fails_as_often(self):
        self.assertEqual(word(plan.FAILURES, pool=0), "reached")
        self.assertEqual(word(plan.FAILURES, pool=2, passthrough=2), "reached")
        self.assertEqual(word(plan.FAILURES, pool=2, passthrough=1), "missed")
        self.assertEqual(word(plan.FAILURES, pool=2), "not known")

    def test_the_largest_live_set_may_be_half_a_percent_less_than_the_drivers(self):
        self.assertEqual(word(goals.LARGEST_SET, pool=99.6, driver=100), "reached")
        self.assertEqual(word(goals.LARGEST_SET, pool=99.4, driver=100), "missed")

    def test_a_program_is_as_quick_as_the_quicker_of_two(self):
        self.assertEqual(word(goals.RATE, pool=99, torch=90, expandable=100), "reached")
        self.assertEqual(word(goals.RATE, pool=98, torch=90, expandable=100), "missed")

    def test_a_pool_that_failed_has_missed_the_goal(self):
        failed = {"allocator": POOL, "case": "any", "unit": plan.FOOTPRINT, "error": "ended with status -6"}
        self.assertEqual(goals.judged([failed])[0][3], "missed")
        self.assertIn("ended with status -6", goals.markdown([failed]))

    def test_failures_of_tight_programs_are_those_of_all_seeds(self):
        results = [{"allocator": name, "case": "any", "unit": goals.TIGHT, "value": value}
                   for name, value in ((POOL, 1), (POOL, 0), (PASSTHROUGH, 3), (POOL, 1))]
        self.assertEqual(goals.judged(results), [(goals.TIGHT, "any", {POOL: "2", PASSTHROUGH: "3"}, "reached")])

    def test_a_row_that_is_no_goal_is_not_told(self):
        self.assertEqual(goals.judged([{"allocator": POOL, "case": "any", "unit": "ms in its calls", "value": 1}]), [])


class OnTheSimulatedDriver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_goals(self, *arguments, python=sys.executable):
        done = subprocess.run([python, "-B", goals.__file__, self.folder, "--build", BUILD, *arguments], text=True,
                              env={**os.environ, "EMM_DRIVER": "sim", "EMM_TEST_TRACES": ""}, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.folder / "goals.json").read_text()), done

    def test_the_pool_has_a_figure_for_every_goal_of_each_recording(self):
        told, done = self.run_goals("replay")
        mine = {(one["case"], one["unit"]) for results in told["cells"].values() for one in results
                if one["allocator"] == POOL and "value" in one}
        for recording in ("train_gpt", "infer_gpt"):
            for unit in (plan.FAILURES, plan.FOOTPRINT, plan.ROUNDS_FOOTPRINT, plan.SECOND_PASS_CALLS, "ns an event",
                         "ns an event, p99.9", "ms in the driver, first pass"):
                self.assertIn((recording, unit), mine)
                self.assertIn(f"| {unit} | {recording} |", done.stdout)

    def test_what_was_found_is_kept_and_a_later_call_goes_on_behind_it(self):
        told, done = self.run_goals("replay", "--seconds", "0")
        self.assertEqual(told["cells"], {})
        self.assertIn("replay not whole", done.stdout)
        kept = {"train: x: emm pool": [{"allocator": POOL, "case": "x", "unit": plan.FOOTPRINT, "value": 1.01}],
                "train: y: emm pool": [{"allocator": POOL, "case": "y", "unit": plan.FOOTPRINT, "error": "failed"}]}
        (self.folder / "goals.json").write_text(json.dumps({**told, "cells": kept}))
        _, done = self.run_goals("replay", "--seconds", "0")
        self.assertIn("| x |", done.stdout)
        self.assertNotIn("| y |", done.stdout)
        (self.folder / "goals.json").write_text(json.dumps({**told, "cells": kept, "build": "another"}))
        self.assertNotIn("| x |", self.run_goals("replay", "--seconds", "0")[1].stdout)

    def test_a_tight_program_and_the_largest_live_set_are_served(self):
        told, _ = self.run_goals("limits", "--tight-seeds", "1")
        units = {one["unit"]: one.get("value") for results in told["cells"].values() for one in results
                 if one["allocator"] == POOL}
        self.assertEqual(units[goals.TIGHT], 0)
        self.assertGreater(units[goals.LARGEST_SET], 250)  # of 256

    @unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
    def test_every_program_runs_on_the_cpu(self):
        for program in PROGRAMS:
            script = goals.ROOT / "tests/clients/gpu/programs/busy" / f"{program}.py"
            done = subprocess.run([PYTHON, "-B", script, "--device", "cpu", "--small", "--rounds", "2"], text=True,
                                  capture_output=True, check=False)
            with self.subTest(program=program):
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(json.loads(done.stdout)["steps_per_second"], 0)


class HardLifetimes(unittest.TestCase):
    def test_blocks_fill_the_memory_at_every_moment_between_the_first_and_the_last(self):
        live, least = 0, []
        rows = [row.split(",") for row in tight_load.lifetimes(1, memory=1 << 20, cuts=200)]
        for row, following in zip(rows, rows[1:]):
            live += int(row[4]) if row[2] == "alloc" else -int(row[4])
            self.assertLessEqual(live, 1 << 20)
            if row[2] == "alloc" and following[2] == "free":  # all events that begin at this moment have begun
                least.append(live)
        self.assertEqual(set(least), {1 << 20})


class Programs(unittest.TestCase):
    def test_each_way_has_its_turn_and_begins_one(self):
        self.assertEqual(list(turns(["a"], ("x", "y"), 2, [])), [("a", "x"), ("a", "y"), ("a", "y"), ("a", "x")])

    def test_runs_that_are_known_are_not_run_again(self):
        done = [{"program": "a", "way": "x"}, {"program": "a", "way": "y"}, {"program": "a", "way": "y"}]
        self.assertEqual(list(turns(["a"], ("x", "y"), 2, done)), [("a", "x")])

    def test_each_program_runs_on_one_gpu_in_all_of_its_ways(self):
        used = {"0": [], "2": []}
        both_run = threading.Barrier(2)

        def measure(plan, _arguments, keep, _until, device):
            if not used[device]:
                both_run.wait(60)
            used[device] += [program for program, _ in plan]
            for program, way in plan:
                keep({"program": program, "way": way, "steps_per_second": 1, "live": 1, "reserved": 1})
            return plan[0][0] != "unet"  # where the time was over
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "0,2"}), \
                unittest.mock.patch("busy_clients.measure", measure), unittest.mock.patch("importlib.util.find_spec"), \
                unittest.mock.patch("goals.build_id", return_value="of a test"), \
                unittest.mock.patch("sys.argv", ["goals.py", folder]):
            one = goals.Goals(goals.options())
            self.assertFalse(one.programs())
            self.assertEqual(len(one.kept.told["runs"]), len(PROGRAMS) * len(goals.busy_clients.WAYS) * goals.TIMES)
        self.assertEqual(set(used["0"]) | set(used["2"]), set(PROGRAMS))
        self.assertEqual(set(used["0"]) & set(used["2"]), set())

    def test_the_rate_is_the_median_and_the_peaks_are_the_highest(self):
        runs = [{"program": "a", "way": "x", "steps_per_second": rate, "live": 100, "reserved": reserved}
                for rate, reserved in ((1, 110), (3, 120), (9, 105))]
        found = summary(runs)["a", "x"]
        self.assertEqual((found["rate"], found["ratio"]), (3, 1.2))

    def test_a_run_that_failed_fails_its_row(self):
        runs = [{"program": "a", "way": "x", "steps_per_second": 1, "live": 1, "reserved": 1},
                {"program": "a", "way": "x", "error": "ended with status 1: no"}]
        self.assertIn("error", summary(runs)["a", "x"])

    def test_an_event_log_becomes_a_trace_of_its_device_memory(self):
        log = ["Event Type,Device ID,Address,Stream,Size (bytes),Start",
               "Alloc,0,0x10,0x7f,100,1.0", "Alloc Host,0,0x20,-1,5,1.1", "Alloc,1,0x10,0x7f,7,1.2",
               "Alloc,0,0x30,0x8f,200,1.000003", "Free,0,0x10,0x8f,100,1.000002", "Free,0,0x30,-1,200,1.000009",
               "Free,0,0x99,0x7f,1,2.0", "Reset,0,0x0,-1,0,3.0"]
        self.assertEqual(trace_of(log)[1:], ["0,0,0,alloc,1,100", "3,0,1,alloc,2,200", "3,0,1,free,1,100", "9,0,1,free,2,200"])
        self.assertEqual(trace_of(log, 2)[1:], ["0,0,0,alloc,1,100", "3,0,1,alloc,2,200"])


if __name__ == "__main__":
    unittest.main()
