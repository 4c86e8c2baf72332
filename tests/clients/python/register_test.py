#!/usr/bin/env python3
"""A plugin written in Python serves this process. EMM_PLUGIN is not set."""
import ctypes
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import emm
from emm import _api, _register

driver = {name: ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(emm.lib.emm_driver_entry(entry, 12000))
          for name, entry, arguments in (
              ("alloc", b"cuMemAlloc", [ctypes.c_void_p, ctypes.c_size_t]),
              ("free", b"cuMemFree", [ctypes.c_ulonglong]))}


class NoText(Exception):
    def __str__(self):
        raise ValueError


class Plain:
    """The smallest plugin, and a few slots whose outputs differ."""
    made, last = [], None

    def __init__(self, info):
        self.info = info
        self.live = {}
        Plain.made.append(self)
        Plain.last = self

    def destroy(self):
        for ptr in self.live:
            driver["free"](ptr)
        self.live = None

    def memalloc(self, size, stream):
        if size == 13:
            raise ZeroDivisionError("thirteen")
        if size == 14:
            raise emm.Error(_api.EMM_E_NOT_SUPPORTED, "not fourteen")
        if size == 15:
            raise ValueError("half of\na \udcff character")
        if size == 16:
            raise MemoryError
        if size == 17:
            raise ValueError
        if size == 18:
            raise NoText
        if size == 19:
            raise emm.Error(0, "no failure")
        if size == 20:
            signal.raise_signal(signal.SIGINT)
        if size > 1 << 30:
            raise MemoryError("more than 1 GiB")
        ptr = ctypes.c_ulonglong()
        assert driver["alloc"](ctypes.byref(ptr), size) == 0
        self.live[ptr.value] = (size, stream)
        return ptr.value

    def memfree(self, ptr, size, stream):
        if self.live.pop(ptr, None) is None:
            raise emm.Error(_api.EMM_E_NOT_OWNED, "not live")
        driver["free"](ptr)

    def get_memory_info(self):
        return 32, 64

    def get_stats(self):
        return emm.Stats(live_bytes=sum(size for size, _ in self.live.values()))


def setUpModule():
    assert emm.register(Plain, description="over the driver")


def alloc(size, stream=emm.UNORDERED):
    ptr = ctypes.c_ulonglong()
    emm.check(emm.lib.emm_memalloc(context(), size, stream, ctypes.byref(ptr)))
    return ptr.value


def free(ptr):
    emm.check(emm.lib.emm_memfree(context(), ptr, 0, emm.UNORDERED))


def context():
    return emm.context_for_device(0)


class Registered(unittest.TestCase):
    def test_it_is_the_plugin_in_force(self):
        info = emm.plugin_info()
        self.assertEqual((info.name, info.description), (b"plain", b"over the driver"))
        self.assertEqual(info.selected_by, b"emm_set_plugin_entry")

    def test_its_manager_knows_the_context(self):
        context()
        self.assertEqual(Plain.made[0].info.device, 0)
        self.assertEqual(Plain.made[0].info.primary, 1)

    def test_memory_comes_from_it_with_size_and_stream_as_integers(self):
        ptr, other = alloc(4096), alloc(256, stream=0)
        self.assertEqual(Plain.last.live[ptr], (4096, emm.UNORDERED))
        self.assertEqual(Plain.last.live[other], (256, 0))
        free(ptr)
        free(other)
        self.assertNotIn(ptr, Plain.last.live)

    def test_outputs_may_be_several_or_a_struct(self):
        self.assertEqual(emm.memory_info(context()), (32, 64))
        ptr = alloc(100)
        self.assertEqual(emm.stats(context()).live_bytes, 100)
        free(ptr)

    def test_what_it_leaves_out_is_the_hosts(self):
        memory = ctypes.c_void_p()
        emm.check(emm.lib.emm_memory_hostalloc(context(), 4096, 0, ctypes.byref(memory)))
        emm.check(emm.lib.emm_memory_release(memory))

    def test_an_exception_becomes_a_status_and_its_sentence(self):
        for size, status, text in ((13, _api.EMM_E_PLUGIN_EXCEPTION, "ZeroDivisionError: thirteen"),
                                   (14, _api.EMM_E_NOT_SUPPORTED, "not fourteen"),
                                   (1 << 40, _api.EMM_E_OUT_OF_MEMORY, "more than 1 GiB")):
            with self.assertRaisesRegex(emm.Error, text) as raised:
                alloc(size)
            self.assertEqual(raised.exception.status, status)

    def test_an_exception_without_words_ends_no_sentence_in_a_mark(self):
        for size, text in ((16, "out of device memory"), (17, "ValueError$")):
            with self.assertRaisesRegex(emm.Error, text) as raised:
                alloc(size)
            self.assertNotRegex(str(raised.exception), "[:;,] *$")

    def test_an_exception_whose_text_raises_or_whose_status_is_no_failure_becomes_one(self):
        for size, text in ((18, "an exception that could not be reported"), (19, "Error: no failure")):
            with self.assertRaisesRegex(emm.Error, text) as raised:
                alloc(size)
            self.assertEqual(raised.exception.status, _api.EMM_E_PLUGIN_EXCEPTION)

    def test_an_interrupt_fails_the_call_and_reaches_the_main_thread(self):
        ptr = ctypes.c_ulonglong()
        with self.assertRaises(KeyboardInterrupt):
            status = emm.lib.emm_memalloc(context(), 20, emm.UNORDERED, ctypes.byref(ptr))
            time.sleep(5)
        self.assertEqual(status, _api.EMM_E_PLUGIN_EXCEPTION)

    def test_a_sentence_that_is_no_unicode_or_no_line_still_arrives(self):
        with self.assertRaises(emm.Error) as raised:
            alloc(15)
        self.assertEqual(raised.exception.status, _api.EMM_E_PLUGIN_EXCEPTION)
        self.assertIn("ValueError: half of a ? character", str(raised.exception))
        with self.assertRaises(emm.Error) as raised:
            emm.check(_register._registered[-1].host.fail(_api.EMM_E_DRIVER, 0, b"caf\xe9\nclosed"))
        self.assertEqual(str(raised.exception), "caf\ufffd closed")

    def test_memory_that_is_not_live_is_refused(self):
        with self.assertRaises(emm.Error) as raised:
            free(4096)
        self.assertEqual(raised.exception.status, _api.EMM_E_NOT_OWNED)

    def test_threads_may_call_it_at_the_same_time(self):
        failures = []

        def churn():
            try:
                for _ in range(100):
                    free(alloc(512))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=churn) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_zz_a_reset_destroys_the_manager_and_makes_another(self):
        served, before = context(), Plain.last
        alloc(100)
        emm.check(emm.lib.emm_context_reset(served))
        alloc(100)
        self.assertIsNone(before.live)
        self.assertIsNot(Plain.last, before)


# The C library calls a function at exit after the interpreter has ended.
ENDS = """
import ctypes
import register_test
from emm import lib
register_test.setUpModule()
register_test.alloc(4096)
ctypes.CDLL(None).__cxa_atexit(lib.emm_shutdown, None, None)
"""


class Exit(unittest.TestCase):
    def test_no_manager_is_called_after_the_interpreter_has_ended(self):
        ended = subprocess.run([sys.executable, "-c", ENDS], cwd=sys.path[0], capture_output=True, text=True)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


# PyDLL calls a function with the interpreter's lock held, as CuPy does; CDLL without it, as PyTorch does.
FIRST = """
import ctypes, sys
sys.path.append(sys.argv[1])
import long_reset
from emm._bridge import bridge_path
malloc = ctypes.PyDLL(bridge_path).emm_cupy_malloc
malloc.argtypes, malloc.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_void_p
thread = long_reset.begin()
print(malloc(1, 100, 0) is not None)
thread.join()
"""

SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:  # before Python 3.13
    import _xxsubinterpreters as interpreters
interpreters.destroy(interpreters.create())
"""


class FirstAllocation(unittest.TestCase):
    def test_one_by_cupy_waits_for_a_reset_in_another_thread(self):
        self.check(FIRST)

    def test_it_waits_in_a_process_that_has_made_a_subinterpreter_too(self):
        for caller in ("PyDLL", "CDLL"):
            self.check(SUBINTERPRETER + FIRST.replace("PyDLL", caller))

    def check(self, program):
        stand_ins = str(pathlib.Path(__file__).with_name("stand_ins"))
        done = subprocess.run([sys.executable, "-c", program, stand_ins], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "True\n"), done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
