#!/usr/bin/env python3
"""Numba on emm, as much as needs no kernel. Numba takes the first libcuda.so.1 that it finds."""
import gc
import os
import pickle
import subprocess
import sys
import threading
import unittest

try:
    import numba.cuda  # noqa: F401
    import numpy as np
except ImportError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(77)

import emm
from emm import numba as manager
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError, binding

OPEN = """
import pickle, sys
import numpy as np
from numba import cuda
handle = pickle.load(sys.stdin.buffer)
with handle as array:
    print(array.copy_to_host().tolist())
try:
    with handle:
        pass
except ValueError as error:
    print(error)
"""

LAUNCH = """
import numpy as np
from cuda.core import Device, LaunchConfig, ObjectCode, launch
from numba import cuda
array = cuda.to_device(np.arange(4))
Device(0).set_current()
stream = Device(0).create_stream()
ptx = b".version 7.0\\n.target sm_50\\n.address_size 64\\n.visible .entry nothing()\\n{\\n ret;\\n}\\n"
launch(stream, LaunchConfig(grid=1, block=32), ObjectCode.from_ptx(ptx).get_kernel("nothing"))
stream.sync()
print(array.copy_to_host().tolist())
"""


def served():
    return cuda.current_context().memory_manager.emm_context


def live():
    gc.collect()
    return emm.stats(served()).live_bytes


def held():
    """Bytes of the driver's that the plugin keeps when it has been asked for all it can give back."""
    gc.collect()
    emm.check(emm.lib.emm_trim(served(), 0, None))
    return emm.stats(served()).reserved_bytes


class Memory(unittest.TestCase):
    def test_numbas_memory_manager_is_emm(self):
        self.assertIs(type(cuda.current_context().memory_manager), manager.MemoryManager)

    def test_device_memory_is_the_plugins_and_goes_back_with_the_last_slice(self):
        before = live()
        array = cuda.to_device(np.arange(1000))
        self.assertEqual(live() - before, 8000)
        part = array[500:510]
        del array
        self.assertEqual(live() - before, 8000)
        self.assertEqual(part.copy_to_host().tolist(), list(range(500, 510)))
        del part
        self.assertEqual(live(), before)

    def test_pinned_mapped_and_managed_memory_can_be_written_by_the_host(self):
        for make in (cuda.pinned_array, cuda.mapped_array, cuda.managed_array):
            array = make(1000)
            array[:] = 3
            self.assertEqual(array.sum(), 3000, make)

    def test_a_callers_range_is_pinned_for_the_length_of_a_section(self):
        array = np.zeros(10000)
        for _ in range(2):
            with cuda.pinned(array):
                pass
            with cuda.mapped(array) as mapped:
                self.assertEqual(mapped.nbytes, array.nbytes)

    def test_figures_come_from_the_plugin(self):
        self.assertEqual(cuda.current_context().get_memory_info(), emm.memory_info(served()))

    def test_out_of_memory_is_the_error_that_numba_expects(self):
        with self.assertRaises(CudaAPIError) as raised:
            cuda.device_array(1 << 50, dtype=np.uint8)
        self.assertEqual(raised.exception.code, binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
        self.assertIn(str(1 << 50), str(raised.exception))

    def test_cuda_core_allocates_by_emm_too(self):
        before = live()
        buffer = cuda.current_context().device._dev.allocate(4096, stream=numba_stream())
        self.assertEqual(live() - before, 4096)
        buffer.close()
        self.assertEqual(live(), before)


def numba_stream():
    return cuda.current_context().device._dev.default_stream


class Ends(unittest.TestCase):
    def test_a_finalizer_may_run_on_a_thread_without_a_context(self):
        before, arrays = live(), [cuda.device_array(1000)]
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        thread.join()
        self.assertEqual(live(), before)

    def test_after_a_reset_old_arrays_leave_new_memory_alone(self):
        cuda.current_context().reset()
        old = [cuda.device_array(256) for _ in range(16)]
        buffer = cuda.current_context().device._dev.allocate(4096, stream=numba_stream())
        cuda.current_context().reset()
        cuda.current_context().reset()
        new = [cuda.to_device(np.full(256, n)) for n in range(16)]
        held = live()
        old.clear()
        buffer.close()
        self.assertEqual(live(), held)
        self.assertEqual([int(array.copy_to_host()[255]) for array in new], list(range(16)))

    def test_sections_of_deferred_cleanup_nest(self):
        size = 64 << 20
        before = held()
        with cuda.defer_cleanup():
            with cuda.defer_cleanup():
                cuda.device_array(size, dtype=np.uint8)
            self.assertGreaterEqual(held(), before + size)
        self.assertLess(held(), before + size)

    def test_arrays_that_live_to_the_end_of_the_interpreter_do_no_harm(self):
        done = subprocess.run([sys.executable, "-c", "from numba import cuda\n"
                               "kept = [cuda.device_array(10), cuda.pinned_array(10), "
                               "cuda.mapped_array(10)]"],
                              capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Kernels(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("EMM_DRIVER") == "sim", "of the simulated driver")
    def test_they_are_launched_beside_memory_of_emm_where_the_simulated_driver_lets_them(self):
        for option, expected in (("kernels=none", (0, "[0, 1, 2, 3]\n")), ("devices=1", (1, ""))):
            done = subprocess.run([sys.executable, "-c", LAUNCH], env={**os.environ, "EMM_SIM": option},
                                  capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual((done.returncode, done.stdout), expected, done.stderr[-2000:])


class Sharing(unittest.TestCase):
    def opened(self, handle):
        done = subprocess.run([sys.executable, "-c", OPEN], input=pickle.dumps(handle),
                              capture_output=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode().splitlines()

    def test_a_part_is_opened_by_another_process_also_when_its_handle_has_gone(self):
        other = cuda.to_device(np.zeros(10))
        array = cuda.to_device(np.arange(10))
        handle = array[3:8].get_ipc_handle()
        sent = pickle.loads(pickle.dumps(handle))
        del handle
        self.assertEqual(self.opened(sent)[0], "[3, 4, 5, 6, 7]")
        del other

    def test_the_exporter_cannot_open_it(self):
        handle = cuda.to_device(np.arange(10)).get_ipc_handle()
        with self.assertRaisesRegex(ValueError, "original process"):
            with handle:
                pass


if __name__ == "__main__":
    unittest.main(verbosity=2)
