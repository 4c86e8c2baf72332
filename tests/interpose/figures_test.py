#!/usr/bin/env python3
"""figures_test.py PROGRAM DRIVER INTERPOSER NVML NAMES: what a program under `emm run` learns of its memory, from CUDA and from
NVML. Behind the interposers in the folder INTERPOSER lie the simulated driver, in DRIVER, and the stand-in for
libnvidia-ml.so.1 in the folder NVML (nvml/nvml.c). NAMES is the list of NVML's functions."""
import ctypes
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, DRIVER, INTERPOSER, NVML, NAMES = (os.path.realpath(path) for path in sys.argv[1:6])
MIB = 1 << 20
GIB = 1 << 30
DEVICE, LIMIT = 8192 * MIB, 1024 * MIB
# PLUGIN+SIZE: with EMM_LIMIT=SIZE.
LIMITED = ("pool:max=1GiB", "pool:max=1GiB,growth=segment", "async:max=1GiB", "pool+1GiB", "passthrough+*=1GiB", "async+1GiB",
           "pool:max=2GiB+1GiB", "pool:max=1GiB+2GiB")


def figures(plugin, *steps, nvml=NVML, says="", program=PROGRAM, **more):
    """Lines of numbers by step, under `emm run`, or natively if `plugin` is None."""
    folders = ":".join(filter(None, (DRIVER, nvml)))
    variables = {"LD_LIBRARY_PATH": folders, "EMM_SIM": "memory=8GiB,devices=2",
                 "ASAN_OPTIONS": "detect_leaks=0,verify_asan_link_order=0"}
    if plugin:
        plugin, _, limit = plugin.partition("+")
        variables.update(EMM_LIMIT=limit, LD_LIBRARY_PATH=f"{INTERPOSER}:{folders}", EMM_PLUGIN=plugin,
                         LD_PRELOAD=f"{INTERPOSER}/libcuda.so.1", EMM_DRIVER=f"{DRIVER}/libcuda.so.1")
    done = subprocess.run([program, *steps], env={**os.environ, **variables, **more}, text=True, timeout=120,
                          capture_output=True, check=False)
    if done.returncode != 0 or says not in done.stderr or (done.stderr and not says):
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

    def test_each_figure_alone_is_what_both_are_together(self):
        for plugin in (*LIMITED, "pool", None):
            found = figures(plugin, "cuda", "init", "context=0", f"alloc={64 * MIB}", "info", "info=total", "info=free")
            total, free = found[3][2:]
            self.assertEqual(found[4:], [("info", 0, total, 0), ("info", 0, 0, free)], plugin)
            self.assertEqual(total, LIMIT if plugin in LIMITED else DEVICE)

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


REAL, REAL2 = ("memory", 0, 80 * GIB, 70 * GIB, 10 * GIB), ("memory2", 0, 80 * GIB, 70 * GIB, 9 * GIB, 1 * GIB)
UNUSED = ("memory", 0, LIMIT, LIMIT, 0)
OPEN = ("cuda", "init", "nvml=libnvidia-ml.so.1")


class Nvml(unittest.TestCase):
    """NVML's device 1 is CUDA's device 0; its device 2 is none of CUDA's."""

    def agree(self, memory, memory2, info):
        total, free = info[2:]
        self.assertEqual((memory, memory2), (("memory", 0, total, free, total - free),
                                             ("memory2", 0, total, free, total - free, 0)))

    def test_with_a_limit_it_agrees_with_cuda_whichever_is_opened_first(self):
        for plugin in LIMITED:
            for order in (OPEN, ("nvml=libnvidia-ml.so", "cuda", "init"), ("nvml=libnvidia-ml.so.1", *OPEN[:2])):
                found = figures(plugin, *order, "context=0", f"alloc={200 * MIB}", "memory=1", "memory2=1", "info")
                info = found[-1]
                self.agree(*found[-3:])
                self.assertEqual(info[2], LIMIT)
                self.assertLessEqual(info[3], LIMIT - 200 * MIB)

    def test_each_cuda_device_has_the_figures_of_its_own(self):
        found = figures(LIMITED[0], *OPEN, "context=0", f"alloc={200 * MIB}", "memory=0", "memory=1", "memory=2")[-3:]
        self.assertEqual((found[0], found[2]), (UNUSED, REAL))
        self.assertGreaterEqual(found[1][4], 200 * MIB)

    def test_before_there_is_a_context_all_of_the_limit_is_free_and_none_is_made(self):
        for plugin in LIMITED:
            self.assertEqual(figures(plugin, *OPEN, "memory=1", "memory2=1", "active=0", "active=1")[2:],
                             [UNUSED, ("memory2", 0, LIMIT, LIMIT, 0, 0), ("active", 0), ("active", 0)])

    def test_a_thread_that_watches_finds_the_same(self):
        found = figures(LIMITED[0], *OPEN, "context=0", f"alloc={200 * MIB}", "memory=1", "monitor=1", "none", "memory=1")
        self.assertEqual(set(found[-3:]), {found[-1]})
        self.assertGreaterEqual(found[-1][4], 200 * MIB)

    def test_without_a_limit_or_emm_they_are_nvmls(self):
        for plugin in (None, "pool", "passthrough", "pool:max=1TiB"):
            found = figures(plugin, *OPEN, "memory=1", "context=0", "alloc=1048576", "memory=1", "memory2=1")
            self.assertEqual((found[2], *found[-2:]), (REAL, REAL, REAL2), plugin)

    def test_a_program_that_does_not_use_cuda_gets_nvmls_and_stays_so(self):
        for before in ((), ("cuda",)):
            self.assertEqual(figures(LIMITED[0], *before, "nvml=libnvidia-ml.so.1", "memory=1", "memory2=1",
                                     "loaded=libemm.so.1"), [("nvml", 0), REAL, REAL2, ("loaded", 0)])

    def test_a_program_that_is_linked_with_it_is_no_other(self):
        self.assertEqual(figures(LIMITED[0], "cuda", "init", "nvml=", "memory=1", program=f"{PROGRAM}-linked")[1:],
                         [("nvml", 0), UNUSED])

    def test_a_context_may_end_while_another_thread_asks(self):
        for plugin in LIMITED[::2]:
            self.assertEqual(figures(plugin, *OPEN, "come-and-go=40")[2:], [("others", 0)])

    def test_a_child_that_does_not_use_cuda_gets_nvmls(self):
        self.assertEqual(figures(LIMITED[0], *OPEN, "context=0", "memory=1", "exec", "nvml=libnvidia-ml.so.1", "memory=1")[3:],
                         [UNUSED, ("nvml", 0), REAL])

    def test_a_forked_child_gets_nvmls(self):
        self.assertEqual(figures(LIMITED[0], *OPEN, "context=0", "memory=1", "fork", "memory=1")[3:], [UNUSED, REAL])

    def test_where_no_plugin_serves_they_are_nvmls(self):
        library_failed = 303
        self.assertEqual(figures("pol", *OPEN, "memory=1", says="no plugin is called 'pol'"),
                         [("init", library_failed), ("nvml", 0), REAL])

    def test_a_bound_that_makes_no_sense_ends_cuinit_with_one_sentence(self):
        library_failed = 303
        for limit, complaint in (("8GB", "expected a size such as 8GiB (in KiB, MiB, GiB or TiB), or GPU-UUID=8GiB;*=16GiB, found '8GB'"),
                                 ("1MiB", "expected a size of at least 2MiB, found '1MiB'"),
                                 ("GPU-77=1GiB", "expected the UUID of a device that the program sees, found 'GPU-77'"),
                                 ("9GiB", "expected at most the 8 GiB that device 0 (GPU-")):
            self.assertEqual(figures(f"pool+{limit}", *OPEN[:2], says=f"emm run: EMM_LIMIT (emm run --limit): {complaint}"),
                             [("init", library_failed)])

    def test_programs_that_share_a_limit_are_told_what_the_others_leave(self):
        for plugin in ("pool+1GiB", "passthrough+1GiB", "async+1GiB"):
            with self.subTest(plugin), tempfile.TemporaryDirectory() as folder:
                opened = [*OPEN, "context=0", f"alloc={600 * MIB}"]
                found = figures(plugin, *opened, "exec", *opened, "memory=1", "info", f"alloc={200 * MIB}", "info",
                                EMM_LIMIT_SHARED="job", EMM_LIMIT_FOLDER=folder)[len(opened) - 1:]
                refused = [row for row in found if row == ("alloc", 2)]
                self.assertEqual(len(refused), 1, found)
                memory, before, alloc, after = found[-4:]
                self.assertEqual((memory[1:3], before[1:3], alloc), ((0, LIMIT), (0, LIMIT), ("alloc", 0)))
                self.assertEqual(memory[3], before[3])
                self.assertLessEqual(before[3], LIMIT - 600 * MIB)
                self.assertLessEqual(after[3], LIMIT - 800 * MIB)

    def test_before_there_is_a_context_memory_taken_of_the_limit_is_not_free(self):
        for plugin in ("pool+1GiB", "async+1GiB", "pool:max=2GiB+1GiB"):
            with self.subTest(plugin), tempfile.TemporaryDirectory() as folder:
                opened = (*OPEN, f"create={200 * MIB}", "memory=1")
                mine, both = [row for row in figures(plugin, *opened, "exec", *opened, EMM_LIMIT_SHARED="job",
                                                     EMM_LIMIT_FOLDER=folder) if row[0] == "memory"]
                self.assertEqual(mine, ("memory", 0, LIMIT, LIMIT - 200 * MIB, 200 * MIB))
                self.assertEqual((both[2], both[2] - both[3]), (LIMIT, both[4]))
                self.assertGreaterEqual(both[4], 400 * MIB)
                found = figures(plugin, *opened, "context=0", "info")
                self.assertEqual(found[-3][3], found[-1][3])

    def test_a_bad_name_of_a_group_ends_cuinit_with_one_sentence(self):
        self.assertEqual(figures("pool+1GiB", *OPEN[:2], EMM_LIMIT_SHARED="a b",
                                 says="emm run: EMM_LIMIT_SHARED (emm run --shared): expected a letter")[-1][0], "init")

    def test_what_nvml_refuses_is_refused(self):
        for plugin in (None, LIMITED[0]):
            self.assertEqual(figures(plugin, *OPEN, "refused=")[2:], [("refused", 2, 2, 2)])


class WholeNvml(unittest.TestCase):
    """Every function is there; those behind it may not be."""
    FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND = 13, 12

    def test_every_name_in_the_list_is_a_function_of_it(self):
        sys.path.insert(0, str(pathlib.Path(NAMES).parent.parent))
        sys.dont_write_bytecode = True
        names = importlib.import_module("entries").listed_in(pathlib.Path(NAMES))
        library = ctypes.CDLL(f"{INTERPOSER}/libnvidia-ml.so.1")
        self.assertEqual([name for name in names if not hasattr(library, name)], [])
        self.assertGreater(len(names), 400)

    def test_a_function_that_the_library_lacks_says_so(self):
        self.assertEqual(figures("pool", *OPEN, "call=nvmlDeviceGetMemoryLimits_v1", "call=nvmlInternalGetExportTable",
                                 "call=nvmlShutdown", "text=0")[2:],
                         [("call", self.FUNCTION_NOT_FOUND)] * 2 + [("call", 0), ("text", len("The operation was successful"))])

    def test_without_the_library_each_function_says_so(self):
        self.assertEqual(figures("pool", "nvml=libnvidia-ml.so.1", "call=nvmlShutdown", "call=nvmlDeviceGetMemoryInfo",
                                 "text=12", "text=999", nvml=""),
                         [("nvml", self.LIBRARY_NOT_FOUND)] + [("call", self.LIBRARY_NOT_FOUND)] * 2 +
                         [("text", len("NVML Shared Library Not Found")), ("text", len("Unknown Error"))])

    def test_two_interposers_do_not_call_each_other(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder, "libnvidia-ml.so.1")
            other.write_bytes(pathlib.Path(INTERPOSER, other.name).read_bytes())
            self.assertEqual(figures("pool", "nvml=libnvidia-ml.so.1", nvml=folder), [("nvml", self.LIBRARY_NOT_FOUND)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
