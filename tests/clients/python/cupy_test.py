#!/usr/bin/env python3
"""cupy_test.py: how emm.cupy asks for the current stream, with a stand-in for CuPy."""
import ctypes
import sys
import types
import unittest

current = 0  # the stand-in's current stream
tell = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: current)
SIGNATURE = b"intptr_t (void)"


class Pointer:
    def __init__(self, ptr):
        self.ptr = ptr


class CFunctionAllocator:
    """As CuPy's, but that a test frees by hand."""

    def __init__(self, param, malloc, free, owner):
        types_of_malloc = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.param = param
        self._malloc = ctypes.PYFUNCTYPE(*types_of_malloc)(malloc)
        self._free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(free)

    def malloc(self, size):
        pointer = Pointer(self._malloc(self.param, size, 0) or 0)
        pointer.free = lambda: self._free(self.param, pointer.ptr, 0)
        return pointer


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total):
        super().__init__(f"Out of memory allocating {size} bytes")


def stand_in(capsules):
    """emm.cupy, imported anew over a CuPy that exports these C functions."""
    backend = types.ModuleType("cupy_backends.cuda.stream")
    backend.__pyx_capi__ = capsules
    cuda = types.ModuleType("cupy.cuda")
    cuda.CFunctionAllocator, cuda.PinnedMemoryPointer = CFunctionAllocator, lambda memory, offset: memory
    cuda.get_current_stream = lambda: Pointer(current)
    cuda.memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    cupy = types.ModuleType("cupy")
    cupy.cuda = cuda
    parents = {name: types.ModuleType(name) for name in ("cupy_backends", "cupy_backends.cuda")}
    parents["cupy_backends.cuda"].stream = backend
    parents["cupy_backends"].cuda = parents["cupy_backends.cuda"]
    sys.modules.update({"cupy": cupy, "cupy.cuda": cuda, "cupy_backends.cuda.stream": backend, **parents})
    sys.modules.pop("emm.cupy", None)
    import emm.cupy
    return emm.cupy


def capsule(signature):
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi))
    return make(ctypes.cast(tell, ctypes.c_void_p), signature, None)


class Streams(unittest.TestCase):
    def comes_again_at_once(self, allocator, stream):
        """Whether what is freed is given out there with no wait: the pool does so in a stream's order."""
        global current
        current = stream
        first = allocator(4096)
        first.free()
        second = allocator(4096)
        second.free()
        current = 0
        return first.ptr == second.ptr

    def check_streams(self, allocator):
        self.assertTrue(self.comes_again_at_once(allocator, 0))
        self.assertFalse(self.comes_again_at_once(allocator, 7))

    def test_the_stream_is_asked_in_c_where_cupy_exports_that(self):
        module = stand_in({"get_current_stream_ptr": capsule(SIGNATURE)})
        self.assertNotEqual(module._current_stream_function(), 0)
        self.check_streams(module.allocator())

    def test_and_in_python_where_it_does_not_or_does_so_with_another_signature(self):
        for capsules in ({}, {"get_current_stream_ptr": capsule(b"float (int)")}):
            module = stand_in(capsules)
            self.assertEqual(module._current_stream_function(), 0)
            self.check_streams(module.allocator())

    def test_without_order_no_memory_belongs_to_a_stream(self):
        module = stand_in({"get_current_stream_ptr": capsule(SIGNATURE)})
        self.assertFalse(self.comes_again_at_once(module.allocator(ordered=False), 0))

    def test_what_cannot_be_had_is_cupys_error_with_emms_words(self):
        module = stand_in({})
        with self.assertRaisesRegex(OutOfMemoryError, "allocating .* bytes: .*out of device memory"):
            module.allocator()(1 << 46)
        self.assertEqual(module.allocator()(0).ptr, 0)


if __name__ == "__main__":
    unittest.main()
