"""emm behind CuPy: device memory, and the pinned memory that CuPy copies through.

    import emm.cupy
    emm.cupy.use()

CuPy tells an allocator no stream. What is allocated while the default stream is current belongs to
that stream, as in CuPy's own pool: it is given out there again at once, and elsewhere when that is
safe. What is allocated while another stream is current, which may be destroyed before the array
is, waits after its free for all work of the context. An allocation inside a capture needs
emm.lib.emm_capture_begin before the capture and emm_capture_end after it.
"""
import cupy
from cupy.cuda import PinnedMemoryPointer, get_current_stream

from ._api import lib
from ._bridge import address, bridge

_TESTED, _LEGACY, _PINNED = 1, 2, 4  # EMM_CUPY_*


def _function_allocator(param):
    return cupy.cuda.CFunctionAllocator(_TESTED | param, address("emm_cupy_malloc"),
                                        address("emm_cupy_free"), bridge).malloc


def _refuse(size):
    error = cupy.cuda.memory.OutOfMemoryError(size, -1)
    error.args = (f"{error.args[0]}: {lib.emm_last_error().contents.text.decode(errors='replace')}",)
    raise error


class Allocator:
    """What cupy.cuda.set_allocator and cupy.cuda.using_allocator take.

    With `ordered` false all memory waits for all work of its context after its free.
    """

    def __init__(self, ordered=True):
        self._any_stream = _function_allocator(0)
        self._default_stream = _function_allocator(_LEGACY) if ordered else None

    def __call__(self, size):
        if self._default_stream and get_current_stream().ptr == 0:
            pointer = self._default_stream(size)
        else:
            pointer = self._any_stream(size)
        if size and not pointer.ptr:
            _refuse(size)
        return pointer


_pinned = _function_allocator(_PINNED)


def pinned_allocator(size):
    """What cupy.cuda.set_pinned_memory_allocator takes."""
    memory = _pinned(size).mem
    if size and not memory.ptr:
        _refuse(size)
    return PinnedMemoryPointer(memory, 0)


def use(ordered=True):
    """Puts emm behind both of CuPy's allocators."""
    cupy.cuda.set_allocator(Allocator(ordered))
    cupy.cuda.set_pinned_memory_allocator(pinned_allocator)
