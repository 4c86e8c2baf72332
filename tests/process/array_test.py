#!/usr/bin/env python3
"""Arrays exchanged with NumPy, and on a real GPU with CuPy: emm's rules against theirs."""
import ctypes
import gc
import itertools
import random
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

from emm_arrays import (C_CONTIGUOUS, F_CONTIGUOUS, HOST_MAPPED, UNORDERED, Failure, Finalizer,
                        Memory, Shared, array_of, call, context, described, interface_of, layout_of,
                        lib)

try:
    import cupy
    cupy.cuda.runtime.getDeviceCount()
    no_cupy = None
except ImportError:
    no_cupy = "CuPy is not installed"
except Exception as error:  # without CuPy, its own errors cannot be named
    no_cupy = f"CuPy finds no GPU: {error}"

KDL_CUDA, KDL_CUDA_HOST = 2, 3
# Before 2.1, NumPy asks for the unversioned tensor, takes it as read-only, and knows no booleans.
VERSIONED = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)
NUMBERS = ("?" if VERSIONED else "") + "bhilqBHILQefdFD"
byte_bounds = np.lib.array_utils.byte_bounds if hasattr(np.lib, "array_utils") else np.byte_bounds


def pinned(size, flags=0):
    return Memory("emm_memory_hostalloc", context(), ctypes.c_size_t(size), ctypes.c_uint32(flags))


def bounds(array):
    low, high = byte_bounds(array)
    return low, high - low


def random_part(generator):
    """Any slice, transposition or broadcast of an array: gaps, negative strides, empty sides."""
    shape = [generator.choice([1, 2, 3, 5]) for _ in range(generator.randint(0, 4))]
    array = np.zeros(shape, dtype=generator.choice(["u1", "<i2", "<f8", "<c16"]))
    for axis, size in enumerate(shape):
        start, stop = generator.randint(0, size), generator.randint(0, size)
        step = generator.choice([1, 1, 2, -1, -2])
        array = array[(slice(None),) * axis + (slice(start if step < 0 else 0,
                                                     None if step < 0 else stop, step),)]
    order = list(range(array.ndim))
    generator.shuffle(order)
    array = array.transpose(order)
    return np.broadcast_to(array, (2, *array.shape)) if generator.random() < 0.2 else array


class Rules(unittest.TestCase):
    def test_every_type_of_numpy_has_the_size_that_numpy_gives_it(self):
        kinds = [*np.typecodes["All"].replace("O", ""), "S5", "U3", "V7", "M8[ns]", "m8[25us]"]
        kinds += [order + code for order in "<>" for code in ("i4", "f8", "c16", "U2")]
        for kind in kinds:
            array = np.zeros(3, dtype=kind)
            if array.itemsize == 0:
                continue
            layout, _ = layout_of(array_of(array.__array_interface__))
            self.assertEqual(layout.itemsize, array.itemsize, kind)

    def test_an_array_of_objects_is_refused(self):
        with self.assertRaisesRegex(Failure, "objects of a host program"):
            layout_of(array_of(np.zeros(3, dtype=object).__array_interface__))

    def test_records_have_the_fields_that_numpy_describes(self):
        record = np.dtype([("id", "<u4"), ("at", [("x", "<f4"), ("y", "<f4", (2, 3))]),
                           ("tag", "S3")], align=True)
        array = array_of(np.zeros(4, dtype=record).__array_interface__)
        self.assertEqual(array.descr_count, len(record.descr))
        self.assertEqual(layout_of(array)[0].itemsize, record.itemsize)
        array.descr_count -= 1
        with self.assertRaisesRegex(Failure, f"expected the {record.itemsize} bytes of typestr"):
            layout_of(array)

    def test_any_part_of_an_array_reaches_as_far_as_numpy_says(self):
        generator = random.Random(7)
        for _ in range(2000):
            part = random_part(generator)
            interface = dict(part.__array_interface__, strides=part.strides)
            if part.size == 0:
                interface["data"] = (0, False)
            layout, strides = layout_of(array_of(interface))
            what = (part.shape, part.strides)
            self.assertEqual(layout.count, part.size, what)
            self.assertEqual(bool(layout.flags & C_CONTIGUOUS), part.flags.c_contiguous, what)
            self.assertEqual(bool(layout.flags & F_CONTIGUOUS), part.flags.f_contiguous, what)
            if part.size != 0:
                low, size = bounds(part)
                data = part.__array_interface__["data"][0]
                self.assertEqual((strides, layout.size, layout.offset),
                                 (part.strides, size, data - low), what)


class NumPy(unittest.TestCase):
    def test_pinned_memory_is_a_numpy_array_by_dlpack_while_numpy_holds_it(self):
        memory = pinned(4096)
        address = memory.info.host
        shared = Shared(memory, described("<f8", (4, 8)), (KDL_CUDA_HOST, 0), offset=256)
        array = np.from_dlpack(shared)
        self.assertEqual((array.shape, array.dtype.str, array.strides), ((4, 8), "<f8", (64, 8)))
        self.assertEqual(array.ctypes.data, address + 256)
        raw = (ctypes.c_double * 32).from_address(address + 256)
        raw[:] = range(32)
        np.testing.assert_array_equal(array, np.arange(32).reshape(4, 8))

    def test_the_memory_goes_back_when_numpy_lets_go(self):
        given_back = []
        finalizer = Finalizer(given_back.append)
        plain = np.zeros(512, dtype="u1")
        memory = Memory("emm_memory_wrap", context(), ctypes.c_ulonglong(0),
                        ctypes.c_void_p(plain.ctypes.data), ctypes.c_size_t(512),
                        ctypes.c_void_p(4711), finalizer)
        array = np.from_dlpack(Shared(memory, described("|u1", (512,)), (1, 0)))
        part = array[::2]
        del memory, array
        gc.collect()
        self.assertEqual(given_back, [])
        plain[0] = 9
        self.assertEqual(part[0], 9)
        del part
        gc.collect()
        self.assertEqual(given_back, [4711])

    def test_every_number_comes_out_of_dlpack_as_it_went_in(self):
        memory = pinned(4096)
        for code, reverse in itertools.product(NUMBERS, (False, True)):
            given = np.arange(6).reshape(2, 3).astype(code)
            strides = (given.strides[0], -given.strides[1]) if reverse else given.strides
            offset = 2 * given.itemsize if reverse else 0
            ctypes.memmove(memory.info.host, given.ctypes.data, given.nbytes)
            shared = Shared(memory, described(given.dtype.str, given.shape, strides),
                            (KDL_CUDA_HOST, 0), offset)
            taken = np.from_dlpack(shared)
            self.assertEqual(taken.dtype, given.dtype)
            np.testing.assert_array_equal(taken, given[:, ::-1] if reverse else given)

    @unittest.skipUnless(VERSIONED, "this NumPy does not ask for versioned tensors")
    def test_what_is_read_only_stays_so(self):
        memory = pinned(256)
        writable = np.from_dlpack(Shared(memory, described("<i4", (8,)), (KDL_CUDA_HOST, 0)))
        fixed = np.from_dlpack(Shared(memory, described("<i4", (8,), read_only=True),
                                      (KDL_CUDA_HOST, 0)))
        self.assertTrue(writable.flags.writeable)
        self.assertFalse(fixed.flags.writeable)

    def test_mapped_memory_is_a_numpy_array_by_the_array_interface(self):
        memory = pinned(1024, HOST_MAPPED)
        array = described("<i4", (3, 5), (40, 8))
        call("emm_array_export", memory.handle, ctypes.c_uint64(64), ctypes.c_void_p(UNORDERED),
             ctypes.byref(array))
        holder = type("Holder", (), {"memory": memory})()
        distance = memory.info.ptr - memory.info.host  # where device and host addresses differ
        interface = interface_of(array)
        interface["data"] = (interface["data"][0] - distance, False)
        holder.__array_interface__ = interface
        taken = np.asarray(holder)
        taken[...] = np.arange(15).reshape(3, 5)
        raw = np.ctypeslib.as_array((ctypes.c_int32 * 256).from_address(memory.info.host))
        np.testing.assert_array_equal(raw[16:16 + 30:2], np.arange(15))


@unittest.skipIf(no_cupy, no_cupy)
class CuPy(unittest.TestCase):
    def exported(self, memory, array, stream=UNORDERED):
        call("emm_array_export", memory.handle, ctypes.c_uint64(0), ctypes.c_void_p(stream),
             ctypes.byref(array))
        holder = type("Holder", (), {"memory": memory})()
        holder.__cuda_array_interface__ = interface_of(array)
        return holder

    def device_memory(self, size):
        return Memory("emm_memory_alloc", context(), ctypes.c_size_t(size),
                      ctypes.c_void_p(UNORDERED))

    def test_device_memory_is_a_cupy_array_by_the_cuda_array_interface(self):
        memory = self.device_memory(4096)
        for version in (2, 3):
            array = described("<f4", (8, 16), version=version)
            taken = cupy.asarray(self.exported(memory, array))
            self.assertEqual(taken.data.ptr, memory.info.ptr)
            taken[...] = cupy.arange(128, dtype="f4").reshape(8, 16)
            self.assertEqual(float(taken.sum()), 127 * 64)

    def test_a_stream_is_handed_on_and_waited_for(self):
        stream = cupy.cuda.Stream(non_blocking=True)
        memory = self.device_memory(4096)
        holder = self.exported(memory, described("<f4", (8, 16)), stream.ptr)
        self.assertEqual(holder.__cuda_array_interface__["stream"], stream.ptr)
        self.assertEqual(cupy.asarray(holder).shape, (8, 16))

    def test_a_cupy_array_becomes_a_handle_that_keeps_it(self):
        given = cupy.arange(128, dtype="i4").reshape(8, 16)[::-1, ::2]
        array, kept, given_back = array_of(given.__cuda_array_interface__), [given], []
        finalizer = Finalizer(given_back.append)
        memory = ctypes.c_void_p()
        layout, _ = layout_of(array)
        call("emm_array_import", context(), ctypes.byref(array), ctypes.c_void_p(UNORDERED),
             ctypes.c_uint32(0), ctypes.c_void_p(4711), finalizer, ctypes.byref(memory),
             ctypes.byref(layout))
        self.assertEqual(given_back, [])
        self.assertEqual(layout.offset, 7 * 64)
        self.assertEqual(lib.emm_memory_release(memory), 0)
        self.assertEqual(given_back, [4711])
        kept.clear()

    def test_device_memory_is_a_cupy_array_by_dlpack_while_cupy_holds_it(self):
        memory = self.device_memory(4096)
        address = memory.info.ptr
        taken = cupy.from_dlpack(Shared(memory, described("<i8", (4, 8)), (KDL_CUDA, 0)))
        del memory
        gc.collect()
        self.assertEqual(taken.data.ptr, address)
        taken[...] = 3
        self.assertEqual(int(taken.sum()), 96)


if __name__ == "__main__":
    unittest.main()
