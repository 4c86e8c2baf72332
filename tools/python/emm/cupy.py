"""emm behind CuPy: device memory, and the pinned memory that CuPy copies through.

    import emm.cupy
    emm.cupy.use()

CuPy tells an allocator no stream. What is allocated while the default stream is current belongs to
that stream, as in CuPy's own pool: it is given out there again at once, and elsewhere when that is
safe. What is allocated while another stream is current, which may be destroyed before the array
is, waits after its free for all work of the context. An allocation inside a capture needs
emm.lib.emm_capture_begin before the capture and emm_capture_end after it.
"""
import ctypes

import cupy
import cupy_backends.cuda.stream as streams
from cupy.cuda import PinnedMemoryPointer, get_current_stream

from ._api import lib
from ._bridge import address, bridge

_TESTED, _LEGACY, _PINNED, _CURRENT = 1, 2, 4, 8  # EMM_CUPY_*


def _current_stream_function():
    """The address of CuPy's C function that returns the current stream, or 0. Cython exports the function
    with its signature."""
    capsule = getattr(streams, "__pyx_capi__", {}).get("get_current_stream_ptr")
    types = ctypes.py_object, ctypes.c_char_p
    is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, *types)(("PyCapsule_IsValid", ctypes.pythonapi))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, *types)(("PyCapsule_GetPointer", ctypes.pythonapi))
    for signature in (b"intptr_t (void)", b"size_t (void)"):
        if is_valid(capsule, signature):
            return pointer(capsule, signature)
    return 0


_tells_current_stream = _current_stream_function()
bridge.emm_cupy_set_current_stream(_tells_current_stream)


def _function_allocator(param):
    return cupy.cuda.CFunctionAllocator(_TESTED | param, address("emm_cupy_malloc"),
                                        address("emm_cupy_free"), bridge).malloc


def _refuse(size):
    error = cupy.cuda.memory.OutOfMemoryError(size, -1)
    error.args = (f"{error.args[0]}: {lib.emm_last_error().contents.text.decode(errors='replace')}",)
    raise error


def _malloc_asking_python():
    """An allocation for a CuPy without that C function: Python tells the stream."""
    any_stream, default_stream = _function_allocator(0), _function_allocator(_LEGACY)
    return lambda size: (any_stream if get_current_stream().ptr else default_stream)(size)


def allocator(ordered=True):
    """The allocator for cupy.cuda.set_allocator and cupy.cuda.using_allocator.

    With `ordered` false, freed memory waits for all work of its context.
    """
    if ordered and not _tells_current_stream:
        malloc = _malloc_asking_python()
    else:
        malloc = _function_allocator(_CURRENT if ordered else 0)

    def allocate(size):  # calling a function is quicker than an object of a class
        pointer = malloc(size)
        if pointer.ptr or not size:
            return pointer
        return _refuse(size)
    return allocate


_pinned = _function_allocator(_PINNED)


def pinned_allocator(size):
    """The allocator for cupy.cuda.set_pinned_memory_allocator."""
    memory = _pinned(size).mem
    if size and not memory.ptr:
        _refuse(size)
    return PinnedMemoryPointer(memory, 0)


def use(ordered=True):
    """Makes emm serve both of CuPy's allocators."""
    cupy.cuda.set_allocator(allocator(ordered))
    cupy.cuda.set_pinned_memory_allocator(pinned_allocator)
