#!/usr/bin/env python3
"""tracking_program.py LIBEMM CALLER: allocates on the driver API, through a C library and by itself, with the
interpreter's lock and without. Prints as JSON what emm_foreach_allocation tells, by size, or its status."""
import ctypes
import json
import sys

LIBEMM, CALLER = sys.argv[1:3]
THROUGH_LIBRARY, WITH_LOCK, WITHOUT_LOCK = 1 << 20, 2 << 20, 3 << 20
cuda, cuda_with_lock = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1")
library = ctypes.CDLL(CALLER)
emm = ctypes.CDLL(LIBEMM)


class Frame(ctypes.Structure):
    _fields_ = [("module", ctypes.c_char_p), ("offset", ctypes.c_uint64), ("function", ctypes.c_char_p),
                ("line", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


class Allocation(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("memory", ctypes.c_uint32), ("ptr", ctypes.c_uint64),
                ("size", ctypes.c_uint64), ("stream", ctypes.c_void_p), ("age_ns", ctypes.c_uint64),
                ("thread", ctypes.c_uint32), ("sample", ctypes.c_uint32), ("module", ctypes.c_char_p),
                ("offset", ctypes.c_uint64), ("frame_count", ctypes.c_uint32), ("frame_size", ctypes.c_uint32),
                ("frames", ctypes.POINTER(Frame)), ("tag", ctypes.c_char_p)]


Visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Allocation), ctypes.c_void_p)


def require(result):
    if result != 0:
        raise RuntimeError(f"status {result}")


def text(value):
    return value.decode() if value is not None else None


# By size, the lines and functions that an allocation comes by, as Python itself tells them.
expected = {}


def noted(size):
    frame, lines = sys._getframe(1), []
    while frame:
        lines.append([frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back
    expected[size] = lines
    return ctypes.c_size_t(size)


def innermost(size):
    address = ctypes.c_uint64()
    require(cuda_with_lock.cuMemAlloc_v2(ctypes.byref(address), noted(size)))
    return address


def without_lock(size):
    require(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), noted(size)))


def through_library(size):
    require(library.allocate_here(cuda.cuMemAlloc_v2, ctypes.byref(ctypes.c_uint64()), noted(size)))


class Physical(ctypes.Structure):
    """CUmemAllocationProp: memory of device 0."""
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int),
                ("location_id", ctypes.c_int), ("meta_data", ctypes.c_void_p), ("flags", ctypes.c_uint64)]


def take_physical(size):
    handle, properties = ctypes.c_uint64(), Physical(1, 0, 1, 0, None, 0)
    require(cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties),
                             ctypes.c_uint64(0)))
    return handle


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps: memory of device 0."""
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int),
                ("location_id", ctypes.c_int), ("security", ctypes.c_void_p), ("reserved", ctypes.c_uint64 * 8)]


def take_from_pool(size):
    """From a pool that gives back what is freed, so it is the driver's."""
    pool, address, properties = ctypes.c_void_p(), ctypes.c_uint64(), PoolProperties(1, 0, 1, 0)
    require(cuda.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(properties)))
    require(cuda.cuMemAllocFromPoolAsync(ctypes.byref(address), ctypes.c_size_t(size), pool, None))
    return address


def tell():
    told = {}

    def visit(allocation, _):
        one = allocation.contents
        frames = [one.frames[i] for i in range(one.frame_count)]
        told[one.size] = {
            "module": text(one.module), "tag": text(one.tag), "native": [text(f.module) for f in frames if f.function is None],
            "python": [[text(f.module), f.line, text(f.function)] for f in frames if f.function is not None]}
        return 0

    context = ctypes.c_void_p()
    require(emm.emm_context_current(ctypes.byref(context)))
    status = emm.emm_foreach_allocation(context, Visitor(visit), None)
    return told if status == 0 else status


def main():
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    require(cuda.cuInit(0))
    taken, returned = take_physical(16 << 20), take_physical(64 << 20)
    require(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    require(cuda.cuCtxSetCurrent(context))
    require(emm.emm_tag_begin(b"serve"))
    require(emm.emm_tag_begin(b"decode\t1"))
    through_library(THROUGH_LIBRARY)
    require(emm.emm_tag_end())
    require(emm.emm_tag_end())
    try:
        raise ValueError("pending while memory is asked for")
    except ValueError as error:
        innermost(WITH_LOCK)
        assert str(error) == "pending while memory is asked for" and sys.exc_info()[1] is error
    without_lock(WITHOUT_LOCK)
    require(cuda.cuMemRelease(returned))
    pooled = take_from_pool(5 << 20)
    too_much = cuda.cuMemAlloc_v2(ctypes.byref(address), noted(1 << 39))
    print(json.dumps({"told": tell(), "expected": expected, "too_much": too_much}))
    require(cuda.cuMemRelease(taken))
    require(cuda.cuMemFreeAsync(pooled, None))


main()
