"""emm behind CuPy: device memory, and the pinned memory that CuPy copies through.

    import emm.cupy
    emm.cupy.use()

CuPy tells an allocator no stream. What is allocated while the default stream is current belongs to
that stream, as in CuPy's own pool: it is given out there again at once, and elsewhere when that is
safe. What is allocated while another stream is current, which may be destroyed before the array
is, waits after its free for all work of the context. An allocation inside a capture needs
emm.lib.emm_capture_begin before the capture and emm_capture_end after it.
"""
from ctypes import byref, c_void_p

import cupy
from cupy.cuda import get_current_stream

from ._api import EMM_HOST_PORTABLE, UNORDERED, lib
from ._bridge import address, bridge
from ._error import check
from ._process import context_for_device

_TESTED, _LEGACY = 1, 2  # EMM_CUPY_*


def _function_allocator(param):
    return cupy.cuda.CFunctionAllocator(param, address("emm_cupy_malloc"),
                                        address("emm_cupy_free"), bridge).malloc


class Allocator:
    """What cupy.cuda.set_allocator and cupy.cuda.using_allocator take.

    With `ordered` false all memory waits for all work of its context after its free.
    """

    def __init__(self, ordered=True):
        self._any_stream = _function_allocator(_TESTED)
        self._default_stream = _function_allocator(_TESTED | _LEGACY) if ordered else None

    def __call__(self, size):
        if self._default_stream and get_current_stream().ptr == 0:
            pointer = self._default_stream(size)
        else:
            pointer = self._any_stream(size)
        if size and not pointer.ptr:
            self._refuse(size)
        return pointer

    @staticmethod
    def _refuse(size):
        reason = lib.emm_last_error().contents.text.decode()
        error = cupy.cuda.memory.OutOfMemoryError(size, -1)
        error.args = (f"{error.args[0]}: {reason}",)
        raise error


class PinnedMemory:
    """Pinned memory of emm's, as cupy.cuda.PinnedMemory has it."""

    def __init__(self, size):
        self.size, self.ptr = size, 0
        self._context = context_for_device(cupy.cuda.runtime.getDevice())
        host = c_void_p()
        check(lib.emm_memhostalloc(self._context, size, EMM_HOST_PORTABLE, byref(host), None))
        self.ptr = host.value or 0

    def __del__(self, free=lib.emm_memhostfree, flags=EMM_HOST_PORTABLE, stream=UNORDERED):
        if self.ptr:
            free(self._context, self.ptr, self.size, flags, stream)

    def __int__(self):
        return self.ptr


def pinned_allocator(size):
    """What cupy.cuda.set_pinned_memory_allocator takes."""
    return cupy.cuda.PinnedMemoryPointer(PinnedMemory(size), 0)


def use(ordered=True):
    """Puts emm behind both of CuPy's allocators."""
    cupy.cuda.set_allocator(Allocator(ordered))
    cupy.cuda.set_pinned_memory_allocator(pinned_allocator)
