"""emm behind RMM, and so behind cuDF, cuML and whatever else asks RMM for device memory.

    import emm.rmm
    emm.rmm.use()                               # the current device; use(0, 1) for several
    emm.rmm.use(pool="frames", options="max=20GiB")     # by a pool with a name (emm.context_named)

    mr = rmm.mr.StatisticsResourceAdaptor(emm.rmm.resource())   # or below one of RMM's adaptors
    mr = emm.rmm.resource(pinned=True)          # pinned host memory, as of rmm.mr.PinnedHostMemoryResource

Memory is allocated and freed on the streams that RMM names. Out of memory is the MemoryError of
RMM's own resources, with the words of emm_last_error. emm.stats(emm.context_for_device(0)) has the
figures.

From RMM 26.06 on, RMM calls functions of libemm-bridge; an earlier one, or one whose constructor has changed,
calls Python functions, and a RuntimeWarning says so.
"""
import sys
import warnings
from ctypes import CDLL, CFUNCTYPE, byref, c_int, c_size_t, c_ulonglong, c_void_p, sizeof

import rmm
from rmm.mr import CallbackMemoryResource, set_per_device_resource

from ._api import lib
from ._bridge import bridge
from ._error import check
from ._process import context_for_device, context_named, driver_info, made_by


class _Callbacks:
    """Called by RMM where RMM can only call Python."""

    def __init__(self, context):
        self._context = context

    def allocate(self, size, stream):
        return made_by(lib.emm_memalloc, self._context, size, stream.__cuda_stream__()[1],
                       kind=c_ulonglong).value

    def deallocate(self, ptr, size, stream):
        lib.emm_memfree(self._context, ptr, size, stream.__cuda_stream__()[1])


class _PinnedCallbacks(_Callbacks):
    def allocate(self, size, stream):
        made = c_void_p()
        check(lib.emm_memhostalloc(self._context, size, 0, byref(made), None))
        return made.value or 0

    def deallocate(self, ptr, size, stream):
        lib.emm_memhostfree(self._context, ptr, size, 0, stream.__cuda_stream__()[1])


def _object_behind(resource, allocate, deallocate):
    """The address of the C++ object that a CallbackMemoryResource owns, or None. The instance has the address
    before the two callables, and again in the resource's reference to it. If the two differ, the result is
    None."""
    count = type(resource).__basicsize__ // sizeof(c_size_t)
    words = list((c_size_t * count).from_address(id(resource)))
    for place in range(1, count - 1):
        if words[place:place + 2] == [id(allocate), id(deallocate)]:
            found = words[place - 1]
            return found if found in words[:place - 1] else None
    return None


def _serve_natively(serve, resource, context, *callables):
    """Replaces the C++ object by one that calls libemm-bridge. False: this RMM does not allow that."""
    found = _object_behind(resource, *callables)
    if not found:
        return False
    module = CDLL(sys.modules[CallbackMemoryResource.__module__].__file__)
    major, minor = (int(part) for part in rmm.__version__.split(".")[:2])
    return serve(found, context, module._handle, major, minor) >= 0


def _make(device, pool, pinned, options):
    context = context_for_device(device)
    if pool is not None:
        context = context_named(context, pool, options)
    callbacks = (_PinnedCallbacks if pinned else _Callbacks)(context)
    serve = bridge.emm_rmm_serve_pinned if pinned else bridge.emm_rmm_serve
    callables = callbacks.allocate, callbacks.deallocate
    made = CallbackMemoryResource(*callables)
    if not _serve_natively(serve, made, context, *callables):
        warnings.warn(f"RMM {rmm.__version__} calls emm through Python, holding its lock, for each "
                      "allocation and free; RMM 26.06, 26.08 and 26.10 call it directly",
                      RuntimeWarning, stacklevel=3)
    return made


def _current_device():
    """The device of the calling thread's context; without a context 0, where CUDA's runtime begins."""
    driver_info()  # calls cuInit
    entry = lib.emm_driver_entry(b"cuCtxGetDevice", 12000)
    device = c_int()
    found = CFUNCTYPE(c_int, c_void_p)(entry)(byref(device))
    return device.value if found == 0 else 0


_made = {}  # (device, name of a pool, kind of memory) -> the resource that serves it


def resource(device=None, pool=None, options=None, pinned=False):
    """The rmm.mr resource that emm serves by the primary context of `device`, or of the current one.

    With `pool`, by the pool of that name (emm.context_named), which has statistics of its own. `options`
    ("max=20GiB") are those it is made with; without them they are the plugin's. With `pinned`, the memory is pinned
    host memory, which the device reaches too.
    """
    if options is not None and pool is None:
        raise TypeError("emm.rmm: options need a pool with a name: give pool=NAME")
    key = _current_device() if device is None else device, pool, pinned
    if key not in _made:
        _made[key] = _make(*key, options)
    elif options is not None:  # refused if they differ from the resource's own
        context_named(context_for_device(key[0]), pool, options)
    return _made[key]


def use(*devices, pool=None, options=None):
    """Makes emm RMM's resource of these devices, or of the current one, as resource() does."""
    for device in devices or [_current_device()]:
        set_per_device_resource(device, resource(device, pool, options))
