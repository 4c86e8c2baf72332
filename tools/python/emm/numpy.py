"""NumPy arrays in pinned memory, through NumPy's own interface for that (NEP 49).

    with emm.numpy.pinned():
        a = numpy.empty(1_000_000)      # copies to and from a GPU at full speed

    emm.numpy.use_pinned()              # the same, permanently

NumPy keeps the choice in a contextvars.ContextVar: it holds for the calling thread, or for the
calling task of asyncio, and each thread chooses for itself. Each array is freed by what it was made
by, whatever has been chosen since. Arrays are ordinary memory that emm pins: a reset of the context,
or emm.shutdown(), unpins them, and they can be used as before. After that, on a lost device and in a
forked child, where nothing can be pinned any more, new arrays are not pinned. numpy.core.multiarray.get_handler_name(array)
(numpy._core in NumPy 2) tells where an array lies.
"""
import contextlib
import ctypes

import numpy

from ._api import lib
from ._array import new_capsule
from ._bridge import bridge
from ._error import Error

try:
    from numpy._core import _multiarray_umath
except ImportError:  # NumPy 1
    from numpy.core import _multiarray_umath

if tuple(int(part) for part in numpy.__version__.split(".")[:2]) < (1, 22):
    raise ImportError(f"emm.numpy needs NumPy 1.22 or later, found {numpy.__version__}")

_SET_HANDLER = 304  # PyDataMem_SetHandler's place in NumPy's table of C functions


def _from_numpy(index, prototype):
    """The function at a place in NumPy's table of functions."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer_of.restype = ctypes.c_void_p
    table = ctypes.cast(pointer_of(_multiarray_umath._ARRAY_API, None),
                        ctypes.POINTER(ctypes.c_void_p))
    return prototype(table[index])


_set_handler = _from_numpy(_SET_HANDLER, ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object))


def _handler(device):
    """The capsule for NumPy. Raises if the device cannot be served."""
    handler = bridge.emm_numpy_handler(device)
    if not handler:
        raise Error(lib.emm_last_error().contents.code)
    return new_capsule(handler, bridge.emm_numpy_capsule_name(), None)


@contextlib.contextmanager
def pinned(device=0):
    """Arrays made inside the block are in memory pinned by the primary context of `device`."""
    previous = _set_handler(_handler(device))
    try:
        yield
    finally:
        _set_handler(previous)


def use_pinned(device=0):
    """As pinned(), until another call. Returns the argument for restore()."""
    return _set_handler(_handler(device))


def restore(previous):
    """Restores the handler that use_pinned() has replaced."""
    _set_handler(previous)
