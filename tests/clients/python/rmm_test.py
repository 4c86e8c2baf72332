#!/usr/bin/env python3
"""RMM on emm, as much as needs no CUDA runtime: that one refuses a simulated driver."""
import ctypes
import gc
import subprocess
import sys
import unittest
import warnings
from ctypes import CFUNCTYPE, byref, c_int, c_uint, c_void_p
from unittest import mock

try:
    import rmm
except ImportError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(77)

import emm
from emm import _api
from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, Stream

with warnings.catch_warnings(record=True) as WARNED:
    warnings.simplefilter("always")
    import emm.rmm
    RESOURCE = emm.rmm.resource(0)
    PINNED = emm.rmm.resource(0, pinned=True)

NATIVE = tuple(int(part) for part in rmm.__version__.split(".")[:2]) >= (26, 6)
CONTEXT = emm.context_for_device(0)
TOO_MUCH = 1 << 50

LIVE_TO_THE_END = """
import rmm, emm.rmm
emm.rmm.use()
kept = rmm.mr.get_per_device_resource(0)
kept.allocate(1000)
"""
AFTER_SHUTDOWN = """
import ctypes, emm.rmm
from emm import _api
resource = emm.rmm.resource()
kept = resource.allocate(1000)
emm.shutdown()
resource.deallocate(kept, 1000)
counters = _api.Counters()
emm.check(emm.lib.emm_get_counters(ctypes.byref(counters)))
print(counters.late_frees)
try:
    resource.allocate(1000)
except (MemoryError, RuntimeError) as error:
    print("shut down" in str(error))
"""
USED_POOL = """
import emm, emm.rmm, rmm
emm.rmm.use(0, pool="frames")
rmm.mr.get_per_device_resource(0).allocate(1000)
assert emm.stats(emm.context_named(emm.context_for_device(0), "frames")).live_bytes == 1000
"""
TWO_DEVICES = """
import emm, emm.rmm, rmm
emm.rmm.use(0, 1)
for device in 0, 1:
    rmm.mr.get_per_device_resource(device).allocate(1000 + device)
print(*(emm.stats(emm.context_for_device(device)).live_bytes for device in (0, 1)))
"""


def stats():
    gc.collect()
    return emm.stats(CONTEXT)


def live():
    return stats().live_bytes


def driver(name, *types):
    """A driver call that stops the test if it fails."""
    entry = CFUNCTYPE(c_int, *types)(emm.lib.emm_driver_entry(name, 12000))

    def call(*arguments):
        result = entry(*arguments)
        assert result == 0, (name, result)
    return call


class OwnStream:
    """A stream of the driver, in the CUDA stream protocol."""

    def __init__(self):
        made = c_void_p()
        driver(b"cuStreamCreate", c_void_p, c_uint)(byref(made), 0)
        self.handle = made.value

    def __cuda_stream__(self):
        return 0, self.handle


def make_current():
    info = _api.ContextInfo()
    emm.check(emm.lib.emm_context_get_info(CONTEXT, byref(info)))
    driver(b"cuCtxSetCurrent", c_void_p)(info.cuda_context)


class Events:
    """The streams of the allocations and frees while it is entered."""

    def __enter__(self):
        self.allocated, self.freed, self.old = [], [], _api.EventHookInfo()
        self.hook = _api.EventHook(self.note)
        emm.check(emm.lib.emm_set_event_hook(self.hook, None, byref(self.old)))
        return self

    def note(self, event, _):
        found = event.contents
        (self.allocated if found.new_ptr else self.freed).append(found.stream)

    def __exit__(self, *_):
        emm.check(emm.lib.emm_set_event_hook(self.old.hook, self.old.user_data, None))


def python_in(resource):
    """The functions of emm.rmm that a pair of allocation and free calls."""
    called = []

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_filename == emm.rmm.__file__:
            called.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        resource.deallocate(resource.allocate(1000), 1000)
    finally:
        sys.setprofile(None)
    return called


def warnings_in(warned):
    return sum(warning.category is RuntimeWarning and rmm.__version__ in str(warning.message)
               for warning in warned)


class Memory(unittest.TestCase):
    def test_it_is_the_plugins_and_goes_back_with_the_free(self):
        before = stats()
        ptr = RESOURCE.allocate(1000)
        self.assertEqual(live() - before.live_bytes, 1000)
        self.assertEqual(ptr % 256, 0)
        RESOURCE.deallocate(ptr, 1000)
        after = stats()
        self.assertEqual(after.live_bytes, before.live_bytes)
        self.assertEqual(after.frees - before.frees, 1)

    def test_it_is_allocated_and_freed_on_the_streams_that_rmm_names(self):
        make_current()
        first, second = OwnStream(), OwnStream()
        with Events() as seen:
            ptr = RESOURCE.allocate(1000, Stream(first))
            driver(b"cuStreamSynchronize", c_void_p)(first.handle)
            RESOURCE.deallocate(ptr, 1000, Stream(second))
            ptr = RESOURCE.allocate(1000, LEGACY_DEFAULT_STREAM)
            RESOURCE.deallocate(ptr, 1000, DEFAULT_STREAM)
        self.assertEqual(seen.allocated, [first.handle, 1])
        self.assertEqual(seen.freed, [second.handle, None])

    def test_a_device_buffer_is_of_it_until_it_ends(self):
        make_current()
        before = live()
        buffer = rmm.DeviceBuffer(size=5000, stream=Stream(OwnStream()), mr=RESOURCE)
        self.assertEqual(live() - before, 5000)
        del buffer
        self.assertEqual(live(), before)

    def test_nothing_is_asked_of_the_plugin_for_no_bytes(self):
        before = stats().allocations
        self.assertEqual(RESOURCE.allocate(0), 0)
        RESOURCE.deallocate(0, 0)
        self.assertEqual(stats().allocations, before)

    def test_out_of_memory_is_a_memory_error_with_the_words_of_emm(self):
        with self.assertRaises(MemoryError) as raised:
            RESOURCE.allocate(TOO_MUCH)
        self.assertIn(f"out of device memory: {TOO_MUCH} bytes asked for", str(raised.exception))

    def test_a_free_after_emm_is_shut_down_is_counted_and_does_nothing_else(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", AFTER_SHUTDOWN],
                              capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.stdout, done.returncode), ("1\nTrue\n", 0), done.stderr)

    def test_memory_that_lives_to_the_end_of_the_interpreter_does_no_harm(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", LIVE_TO_THE_END],
                              capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class PinnedMemory(unittest.TestCase):
    def served_by(self, resource):
        before = stats()
        ptr = resource.allocate(5000)
        ctypes.memset(ptr, 7, 5000)  # the host's own
        self.assertEqual(stats().host_live_bytes - before.host_live_bytes, 5000)
        self.assertEqual(live(), before.live_bytes)
        resource.deallocate(ptr, 5000)
        self.assertEqual(stats().host_live_bytes, before.host_live_bytes)

    def test_it_is_the_plugins_and_goes_back_with_the_free(self):
        self.served_by(PINNED)
        self.assertIs(emm.rmm.resource(0, pinned=True), PINNED)
        self.assertIsNot(PINNED, RESOURCE)
        self.assertEqual(PINNED.allocate(0), 0)

    def test_it_is_freed_on_the_stream_that_rmm_names(self):
        make_current()
        stream = OwnStream()
        with Events() as seen:
            PINNED.deallocate(PINNED.allocate(1000, Stream(stream)), 1000, Stream(stream))
        self.assertEqual(seen.freed, [stream.handle])

    def test_out_of_memory_is_a_memory_error_which_rmms_adaptors_recognise(self):
        asked = []

        def give_up(size):
            asked.append(size)
            return False

        with self.assertRaisesRegex(MemoryError, "out of host memory"):
            rmm.mr.FailureCallbackResourceAdaptor(PINNED, give_up).allocate(TOO_MUCH)
        self.assertEqual(asked, [TOO_MUCH])

    def test_python_serves_where_rmm_has_no_other_way(self):
        with mock.patch.object(emm.rmm, "bridge") as bridge, mock.patch.object(emm.rmm, "_made", {}), \
                self.assertWarns(RuntimeWarning):
            bridge.emm_rmm_serve_pinned.return_value = _api.EMM_E_NOT_SUPPORTED
            resource = emm.rmm.resource(0, pinned=True)
        self.assertEqual(python_in(resource), ["allocate", "deallocate"])
        self.served_by(resource)
        self.assertEqual(resource.allocate(0), 0)


class Resources(unittest.TestCase):
    def test_use_makes_it_the_one_of_the_current_device(self):
        emm.rmm.use()
        self.assertIs(rmm.mr.get_per_device_resource(0), RESOURCE)

    @unittest.skipIf(emm.driver_info().device_count < 2, "there is one device")
    def test_a_pool_with_a_name_has_a_manager_of_its_own(self):
        before, pool = live(), emm.rmm.resource(0, "frames")
        named = emm.context_named(CONTEXT, "frames")
        kept = pool.allocate(1000)
        self.assertEqual((emm.stats(named).live_bytes, live()), (1000, before))
        pool.deallocate(kept, 1000)
        self.assertEqual(emm.stats(named).live_bytes, 0)
        self.assertIs(emm.rmm.resource(0, "frames"), pool)
        self.assertIsNot(emm.rmm.resource(0, "columns"), pool)
        self.assertIs(emm.rmm.resource(0), RESOURCE)
        with self.assertRaises(emm.Error):
            emm.rmm.resource(0, "bad", "no-such-option=1")
        with self.assertRaises(TypeError):
            emm.rmm.resource(0, options="max=1GiB")
        subprocess.run([sys.executable, "-c", USED_POOL], check=True)

    def test_each_device_has_its_own(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", TWO_DEVICES],
                              capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.stdout, done.returncode), ("1000 1001\n", 0), done.stderr)

    def test_rmm_counts_above_it_what_emm_counts_below(self):
        before = stats()
        counting = rmm.mr.StatisticsResourceAdaptor(RESOURCE)
        blocks = [counting.allocate(size) for size in (100, 2000)]
        self.assertEqual(counting.allocation_counts.current_bytes, 2100)
        self.assertEqual(stats().live_bytes - before.live_bytes, 2100)
        self.assertEqual(stats().allocations - before.allocations, 2)
        for block, size in zip(blocks, (100, 2000)):
            counting.deallocate(block, size)
        self.assertEqual(live(), before.live_bytes)

    def test_an_adaptor_of_rmms_recognises_its_out_of_memory(self):
        asked = []

        def give_up(size):
            asked.append(size)
            return False

        with self.assertRaises(MemoryError):
            rmm.mr.FailureCallbackResourceAdaptor(RESOURCE, give_up).allocate(TOO_MUCH)
        self.assertEqual(asked, [TOO_MUCH])

    def test_no_python_runs_in_an_allocation_or_a_free(self):
        if not NATIVE:
            self.skipTest(f"RMM {rmm.__version__} has no way to do without")
        self.assertEqual((python_in(RESOURCE), warnings_in(WARNED)), ([], 0))

    def test_python_serves_where_rmm_has_no_other_way_and_a_warning_says_so(self):
        with mock.patch.object(emm.rmm, "bridge") as bridge, \
                warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            bridge.emm_rmm_serve.return_value = _api.EMM_E_NOT_SUPPORTED
            with mock.patch.object(emm.rmm, "_made", {}):
                resource = emm.rmm.resource(0)
        self.assertEqual((python_in(resource), warnings_in(warned)), (["allocate", "deallocate"], 1))
        before = live()
        block = resource.allocate(1000)
        self.assertEqual(live() - before, 1000)
        resource.deallocate(block, 1000)
        self.assertEqual(live(), before)
        with self.assertRaisesRegex(MemoryError, f"{TOO_MUCH} bytes asked for"):
            resource.allocate(TOO_MUCH)


if __name__ == "__main__":
    unittest.main(verbosity=2)
