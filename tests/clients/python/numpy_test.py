#!/usr/bin/env python3
"""numpy_test.py: NumPy's arrays in pinned memory, on any driver. Skipped where NumPy is missing."""
import ctypes
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
STAND_INS = str(pathlib.Path(__file__).with_name("stand_ins"))
HAS_PYTEST = importlib.util.find_spec("pytest") and importlib.util.find_spec("hypothesis")
PINNED = "emm pinned memory of device 0"
DEFAULT = "default_allocator"
CONTEXT = emm.context_for_device(0)


ATTRIBUTE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_ulonglong)(
    emm.lib.emm_driver_entry(b"cuPointerGetAttribute", 12000))
LARGE = 100_000  # float64s: more than arrays that share pinned memory


def is_pinned(address):
    """Whether the driver knows the address as host memory of its own."""
    gc.collect()
    kind = ctypes.c_uint()
    done = ATTRIBUTE(ctypes.addressof(kind), 2, address)  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    return done == 0 and kind.value == 1  # CU_MEMORYTYPE_HOST


def place(array):
    return array.__array_interface__["data"][0]


def python(program, *arguments, **variables):
    return subprocess.run([sys.executable, "-c", program, *arguments], text=True, capture_output=True,
                          timeout=60, check=False, env={**os.environ, **variables})


class Arrays(unittest.TestCase):
    def test_an_array_made_inside_is_pinned_and_goes_back(self):
        with emm.numpy.pinned():
            small = numpy.arange(1000, dtype=numpy.float64)
            array = numpy.arange(LARGE, dtype=numpy.float64)
        self.assertEqual(get_handler_name(array), PINNED)
        where = place(array)
        self.assertTrue(is_pinned(where) and is_pinned(place(small)))
        self.assertEqual(small.sum(), 499500)
        del array
        self.assertFalse(is_pinned(where))

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
        with emm.numpy.pinned():
            with self.assertRaises(MemoryError):
                numpy.empty(1 << 55, numpy.uint8)
            array = numpy.ones(10)
        self.assertEqual(array.sum(), 10)
        self.assertTrue(is_pinned(place(array)))


class Switches(unittest.TestCase):
    def test_each_array_is_freed_by_what_it_was_made_by(self):
        ordinary = numpy.ones(LARGE)
        with emm.numpy.pinned():
            pinned = numpy.ones(LARGE)
            del ordinary
            inner = ordinary_inside(LARGE)
            self.assertEqual(get_handler_name(inner), DEFAULT)
        self.assertEqual(get_handler_name(pinned), PINNED)
        self.assertFalse(is_pinned(place(inner)))
        del inner
        pinned.resize(4 * LARGE, refcheck=False)
        where = place(pinned)
        self.assertTrue(is_pinned(where))
        self.assertEqual(pinned.sum(), LARGE)
        del pinned
        self.assertFalse(is_pinned(where))

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
        with emm.numpy.pinned():
            arrays = [numpy.ones(size) for size in (10, LARGE) for _ in range(50)]
        places = [place(array) for array in arrays[50:]]
        self.assertTrue(all(map(is_pinned, places)))
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        thread.join()
        self.assertFalse(any(map(is_pinned, places)))

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
                      "print(numpy.ones(1000).sum(), kept.sum())")
        self.assertEqual((done.returncode, done.stdout), (0, "1000.0 1000.0\n"), done.stderr)

    def test_arrays_outlive_a_reset_of_the_context(self):
        done = python("import emm, emm.numpy, numpy\n"
                      "context = emm.context_for_device(0)\n"
                      "emm.numpy.use_pinned()\n"
                      "small, large = numpy.ones(10), numpy.ones(1_000_000)\n"
                      "emm.check(emm.lib.emm_context_reset(context))\n"
                      "print(small.sum(), large.sum(), numpy.ones(10).sum())")
        self.assertEqual((done.returncode, done.stdout), (0, "10.0 1000000.0 10.0\n"), done.stderr)

    def test_an_array_waits_for_a_reset_by_a_plugin_in_python(self):
        done = python("import sys; sys.path.append(sys.argv[1])\n"
                      "import emm.numpy, long_reset, numpy\n"
                      "thread = long_reset.begin(emm.numpy.use_pinned)\n"
                      "print(numpy.ones(100_000).sum()); thread.join()", STAND_INS, EMM_PLUGIN="")
        self.assertEqual((done.returncode, done.stdout), (0, "100000.0\n"), done.stderr)

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
