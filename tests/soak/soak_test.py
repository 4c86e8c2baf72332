#!/usr/bin/env python3
"""soak_test.py BUILD: the fit tells growth from noise, and each measure of a program that grows is told."""
import contextlib
import pathlib
import random
import subprocess
import sys
import time
import unittest

import modes
import soak
from fit import BATCHES, FACTOR, LEAST_SAMPLES, line_of

BUILD = pathlib.Path(sys.argv.pop()).resolve()
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SECONDS = 5


def series(value, seconds=100, samples=400):
    return [(second, value(second)) for second in (seconds * number / samples for number in range(samples))]


class Fit(unittest.TestCase):
    def test_a_line_is_found_exactly(self):
        line = line_of(series(lambda second: 7 + 3 * second))
        self.assertAlmostEqual(line.slope, 3)
        self.assertAlmostEqual(line.error, 0)
        self.assertAlmostEqual(line.growth, 3 * line.seconds)
        self.assertAlmostEqual(line.begin, 7 + 3 * 24.9375)
        self.assertTrue(line.has_grown(200))
        self.assertFalse(line.has_grown(300), "growth that is allowed")

    def test_what_stays_and_what_falls_has_not_grown(self):
        for value in (lambda second: 5, lambda second: 1000 - 3 * second):
            self.assertFalse(line_of(series(value)).has_grown(0))

    def test_growth_in_the_warm_up_is_left_out(self):
        self.assertFalse(line_of(series(lambda second: min(second, 24.0))).has_grown(0))
        self.assertTrue(line_of(series(lambda second: max(second, 24.0))).has_grown(0))

    def test_noise_that_stays_has_not_grown_and_a_leak_below_it_has(self):
        """Noise of 100 around a value that wanders, as that of a pool does: 0 of 200 runs, and of those with a leak all."""
        found = {0: 0, 4: 0}
        for leak in found:
            for seed in range(200):
                chance = random.Random(seed)
                wandering = [0.0]
                for _ in range(400):
                    wandering.append(0.8 * wandering[-1] + chance.gauss(0, 20))
                samples = [(second, leak * second + wander + chance.gauss(0, 100))
                           for (second, _), wander in zip(series(lambda second: 0), wandering)]
                found[leak] += line_of(samples).has_grown(0)
        self.assertEqual(found, {0: 0, 4: 200})

    def test_the_error_is_that_of_the_slopes_that_runs_have(self):
        lines = []
        for seed in range(300):
            chance = random.Random(seed)
            lines.append(line_of(series(lambda second: chance.gauss(0, 10))))
        spread = (sum(line.slope ** 2 for line in lines) / len(lines)) ** 0.5
        error = sum(line.error for line in lines) / len(lines)
        self.assertAlmostEqual(spread / error, 1, delta=0.15)

    def test_a_slope_counts_from_so_many_errors_on(self):
        """Residuals that alternate between batches leave the slope as it is, nearly."""
        line = line_of(series(lambda second: second + 40 * (-1) ** int((second - 24.9375) * BATCHES / 75)))
        self.assertEqual(line.has_grown(0), line.slope > FACTOR * line.error)
        self.assertFalse(line.has_grown(0))

    def test_too_few_samples_are_refused(self):
        with self.assertRaisesRegex(ValueError, "no samples"):
            line_of([])
        with self.assertRaisesRegex(ValueError, f"at least {LEAST_SAMPLES} are needed"):
            line_of(series(lambda second: 0, samples=LEAST_SAMPLES))


class Programs(unittest.TestCase):
    """The report names the resource that a program has too much of, and nothing else."""

    def grown(self, program):
        text = "import os, subprocess, sys, threading, time\n" + program
        mode = modes.Mode("", (sys.executable, "-c", text), {}, ends=False, tells_reserved=False)
        return soak.run("it", mode, SECONDS, BUILD)[1]

    def grown_by(self, step):
        return self.grown(f"kept = []\nwhile True:\n    {step}\n    time.sleep(0.05)")

    def test_each_measure(self):
        for step, measure in (("time.sleep(0)", None), ("kept.append(b'x' * 200000)", "host memory"),
                              ("kept.append(os.open('/dev/null', os.O_RDONLY))", "descriptors"),
                              ("threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", "threads"),
                              ("kept.append(subprocess.Popen(['true']))", "children")):
            with self.subTest(measure=measure):
                found = self.grown_by(step)
                self.assertEqual([problem.split(" has grown")[0] for problem in found], [f"it: {measure}"] if measure else [])

    def test_a_program_that_ends_too_early_or_fails_is_told(self):
        found = self.grown("time.sleep(1)\nsys.exit(3)")
        self.assertIn("ended with status 3", found[-1])

    def test_nothing_is_left_of_a_program(self):
        self.assertEqual(self.grown("child = subprocess.Popen(['sleep', '987654'])\nwhile True: time.sleep(1)"), [])
        until = time.monotonic() + 10  # it is killed, and the kernel may take a moment
        while (left := running(b"sleep\0" + b"987654\0")) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertFalse(left)


def running(command):
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            if path.read_bytes() == command:
                return True
    return False


class Reserved(unittest.TestCase):
    def test_memory_that_a_plugin_takes_and_keeps_is_told(self):
        text = ("import ctypes, time\nimport emm\nfrom emm._api import lib\n"
                "context = emm.context_for_device(0)\naddress = ctypes.c_ulonglong()\nwhile True:\n"
                "    assert lib.emm_memalloc(context, 1 << 20, None, ctypes.byref(address)) == 0\n    time.sleep(0.05)\n")
        mode = modes.Mode("", (sys.executable, "-c", text), ends=False, variables={
            "PYTHONPATH": str(ROOT / "tools/python"), "EMM_LIBRARY": str(BUILD / "lib/libemm.so.1"),
            "EMM_PLUGIN": "passthrough", "EMM_SIM": "memory=16GiB"})
        found = soak.run("it", mode, SECONDS, BUILD)[1]
        self.assertEqual([problem.split(" has grown")[0] for problem in found], ["it: reserved"], found)


class Modes(unittest.TestCase):
    def test_a_mode_has_figures_and_does_not_fail(self):
        """So short a run says nothing of host memory, which still reaches its size."""
        row, problems = soak.run("calls-pool", modes.MODES["calls-pool"], SECONDS, BUILD)
        self.assertEqual([problem for problem in problems if "host memory has grown" not in problem], [], row)
        self.assertEqual(row.count("±"), len(soak.MEASURES))

    def test_a_soak_that_is_ended_ends_its_program(self):
        with subprocess.Popen([sys.executable, str(ROOT / "tests/soak/run"), "peers-pool", "3600", "--build", str(BUILD)],
                              stdout=subprocess.DEVNULL) as running:
            children = pathlib.Path(f"/proc/{running.pid}/task/{running.pid}/children")
            while not children.read_text():
                time.sleep(0.02)
            program = int(children.read_text().split()[0])
            time.sleep(1) # it has a peer
            running.terminate()
            self.assertEqual(running.wait(60), 1)
        self.assertFalse(pathlib.Path(f"/proc/{program}").exists())

    def test_peers_that_die_leave_no_descriptor(self):
        self.assertEqual(soak.run("peers-pool", modes.MODES["peers-pool"], SECONDS, BUILD)[1], [])

    def test_the_program_of_each_mode_is_there(self):
        for name, mode in modes.MODES.items():
            self.assertTrue(mode.takes_gpu or pathlib.Path(soak.filled(mode.command[0], BUILD, SECONDS)).is_file(), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
