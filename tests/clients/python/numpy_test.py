#!/usr/bin/env python3
"""numpy_test.py: NumPy's arrays in pinned memory, on any driver. Skipped where NumPy is missing."""
import gc
import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import unittest

try:
    import numpy
except ImportError:
    print("skipped: this Python has no NumPy")
    sys.exit(77)

import emm
import emm.numpy

try:
    from numpy._core.multiarray import get_handler_name
except ImportError:  # NumPy 1
    from numpy.core.multiarray import get_handler_name

SUITE = pathlib.Path(__file__).resolve().parents[1] / "gpu"  # where pinned_suite.py is
HAS_PYTEST = importlib.util.find_spec("pytest") and importlib.util.find_spec("hypothesis")
PINNED = "emm pinned memory of device 0"
DEFAULT = "default_allocator"
CONTEXT = emm.context_for_device(0)


def live():
    gc.collect()
    return emm.stats(CONTEXT).host_live_bytes


def python(program):
    return subprocess.run([sys.executable, "-c", program], text=True, capture_output=True,
                          timeout=60, check=False)


class Arrays(unittest.TestCase):
    def test_an_array_made_inside_is_pinned_and_goes_back(self):
        before = live()
        with emm.numpy.pinned():
            array = numpy.arange(1000, dtype=numpy.float64)
        self.assertEqual(get_handler_name(array), PINNED)
        self.assertEqual(live(), before + 8000)
        self.assertEqual(array.sum(), 499500)
        del array
        self.assertEqual(live(), before)

    def test_zeros_are_zero_although_the_memory_was_used_before(self):
        with emm.numpy.pinned():
            for _ in range(5):
                array = numpy.zeros(5000, numpy.uint8)
                self.assertFalse(array.any())
                array[:] = 255
                del array

    def test_an_array_is_resized_in_place_and_keeps_its_values(self):
        with emm.numpy.pinned():
            array = numpy.arange(100)
        for size in (100_000, 90_000, 10, 50):
            array.resize(size, refcheck=False)
            self.assertEqual(get_handler_name(array), PINNED)
            numpy.testing.assert_array_equal(array[:10], numpy.arange(10))
        self.assertFalse(array[10:].any())

    def test_an_array_that_grows_while_it_is_read_has_every_value(self):
        with emm.numpy.pinned():
            array = numpy.fromiter((i * i for i in range(10_000)), dtype=numpy.int64)
        self.assertEqual(get_handler_name(array), PINNED)
        numpy.testing.assert_array_equal(array, numpy.arange(10_000) ** 2)

    def test_an_empty_array_and_one_of_objects_work(self):
        with emm.numpy.pinned():
            self.assertEqual(numpy.empty(0).size, 0)
            objects = numpy.array(["a", {}, None, [1]], dtype=object)
        self.assertEqual(objects[3], [1])

    def test_more_than_there_is_is_a_memory_error_and_harms_nothing(self):
        before = live()
        with emm.numpy.pinned():
            with self.assertRaises(MemoryError):
                numpy.empty(1 << 55, numpy.uint8)
            self.assertEqual(numpy.ones(10).sum(), 10)
        self.assertEqual(live(), before)


class Switches(unittest.TestCase):
    def test_each_array_is_freed_by_what_it_was_made_by(self):
        before = live()
        ordinary = numpy.ones(1000)
        with emm.numpy.pinned():
            pinned = numpy.ones(1000)
            del ordinary
            inner = ordinary_inside(1000)
            self.assertEqual(get_handler_name(inner), DEFAULT)
        self.assertEqual(get_handler_name(pinned), PINNED)
        del inner
        self.assertEqual(live(), before + 8000)
        pinned.resize(2000, refcheck=False)
        self.assertEqual(live(), before + 16000)
        del pinned
        self.assertEqual(live(), before)

    def test_an_exception_ends_it_and_sections_nest(self):
        with self.assertRaises(ZeroDivisionError):
            with emm.numpy.pinned():
                with emm.numpy.pinned():
                    pass
                self.assertEqual(get_handler_name(), PINNED)
                raise ZeroDivisionError
        self.assertEqual(get_handler_name(), DEFAULT)

    def test_for_good_means_until_it_is_taken_back(self):
        previous = emm.numpy.use_pinned()
        try:
            self.assertEqual(get_handler_name(numpy.empty(10)), PINNED)
        finally:
            emm.numpy.restore(previous)
        self.assertEqual(get_handler_name(numpy.empty(10)), DEFAULT)

    def test_a_thread_frees_what_another_has_made(self):
        before = live()
        with emm.numpy.pinned():
            arrays = [numpy.ones(1000) for _ in range(100)]
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        thread.join()
        self.assertEqual(live(), before)

    def test_a_device_that_does_not_exist_is_refused_and_nothing_changes(self):
        with self.assertRaises(emm.Error):
            emm.numpy.use_pinned(device=999)
        self.assertEqual(get_handler_name(), DEFAULT)


def ordinary_inside(count):
    """An array made by NumPy's own handler, while another one is in force."""
    found = []
    thread = threading.Thread(target=lambda: found.append(numpy.ones(count)))
    thread.start()
    thread.join()
    return found[0]


class Ends(unittest.TestCase):
    def test_arrays_outlive_emm(self):
        done = python("import emm, emm.numpy, numpy\n"
                      "emm.numpy.use_pinned()\n"
                      "kept = numpy.ones(1000)\n"
                      "gone = numpy.ones(1000)\n"
                      "emm.shutdown()\n"
                      "del gone\n"
                      "print(numpy.ones(1000).sum())")
        self.assertEqual((done.returncode, done.stdout), (0, "1000.0\n"), done.stderr)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_a_forked_child_goes_on_in_ordinary_memory(self):
        done = python("import os, emm.numpy, numpy\n"
                      "emm.numpy.use_pinned()\n"
                      "inherited = numpy.ones(1000)\n"
                      "if os.fork() == 0:\n"
                      "    del inherited\n"
                      "    os._exit(int(numpy.ones(1000).sum()) - 1000)\n"
                      "print(os.wait()[1])")
        self.assertEqual((done.returncode, done.stdout), (0, "0\n"), done.stderr)


class OwnTests(unittest.TestCase):
    @unittest.skipUnless(HAS_PYTEST, "pytest or hypothesis is missing")
    def test_numpys_tests_of_memory_policies_pass_with_pinned_memory(self):
        core = "numpy._core" if importlib.util.find_spec("numpy._core") else "numpy.core"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pinned_suite",
             "--pyargs", f"{core}.tests.test_mem_policy"], text=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": f"{SUITE}:{os.environ['PYTHONPATH']}"}, timeout=120,
            check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
