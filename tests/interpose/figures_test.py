#!/usr/bin/env python3
"""figures_test.py PROGRAM DRIVER INTERPOSER: what a program under `emm run` learns of its memory, on the simulated
driver in the folder DRIVER, with the interposer in the folder INTERPOSER before it."""
import os
import subprocess
import sys
import unittest

PROGRAM, DRIVER, INTERPOSER = (os.path.realpath(path) for path in sys.argv[1:4])
MIB = 1 << 20
DEVICE, LIMIT = 8192 * MIB, 1024 * MIB
LIMITED = ("pool:max=1GiB", "pool:max=1GiB,growth=segment", "async:max=1GiB")


def figures(plugin, *steps):
    """Lines of numbers by step, under `emm run`, or natively if `plugin` is None."""
    variables = {"LD_LIBRARY_PATH": DRIVER, "EMM_SIM": "memory=8GiB,devices=2",
                 "ASAN_OPTIONS": "detect_leaks=0,verify_asan_link_order=0"}
    if plugin:
        variables.update(LD_LIBRARY_PATH=f"{INTERPOSER}:{DRIVER}", EMM_PLUGIN=plugin,
                         LD_PRELOAD=f"{INTERPOSER}/libcuda.so.1", EMM_DRIVER=f"{DRIVER}/libcuda.so.1")
    done = subprocess.run([PROGRAM, *steps], env={**os.environ, **variables}, text=True, timeout=120,
                          capture_output=True, check=False)
    if (done.returncode, done.stderr) != (0, ""):
        raise AssertionError(f"{plugin} {steps}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return [(line.split()[0], *map(int, line.split()[1:])) for line in done.stdout.splitlines()]


class DeviceTotal(unittest.TestCase):
    def test_a_limit_is_the_devices_total_before_there_is_a_context(self):
        for plugin in LIMITED:
            self.assertEqual(figures(plugin, "cuda", "init", "total=0", "total=1", "active=0", "active=1"),
                             [("init", 0), ("total", 0, LIMIT), ("total", 0, LIMIT), ("active", 0), ("active", 0)])

    def test_it_stays_so_in_a_context_and_agrees_with_the_memory_info(self):
        for plugin in LIMITED:
            found = figures(plugin, "cuda", "init", "context=0", "alloc=1048576", "total=0", "info", "total=1")
            self.assertEqual(found[:4], [("init", 0), ("context", 0), ("alloc", 0), ("total", 0, LIMIT)])
            self.assertEqual(found[4][:3], ("info", 0, LIMIT))
            self.assertEqual(found[5], ("total", 0, LIMIT))

    def test_without_a_limit_or_emm_it_is_the_drivers(self):
        for plugin in (None, "pool", "async", "passthrough", "pool:max=1TiB"):
            self.assertEqual(figures(plugin, "cuda", "init", "total=0", "context=0", "total=0")[1::2],
                             [("total", 0, DEVICE), ("total", 0, DEVICE)], plugin)

    def test_a_device_that_is_not_there_has_none(self):
        invalid_device = 101
        for plugin in (None, LIMITED[0]):
            self.assertEqual(figures(plugin, "cuda", "init", "total=7"), [("init", 0), ("total", invalid_device, 0)])

    def test_before_cuinit_it_is_refused(self):
        not_initialized = 3
        for plugin in (None, LIMITED[0]):
            self.assertEqual(figures(plugin, "cuda", "total=0"), [("total", not_initialized, 0)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
