"""A plugin in Python that resets its manager for half a second, and a thread that does so."""
import ctypes
import threading

import emm

_alloc = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(emm.lib.emm_driver_entry(b"cuMemAlloc", 12000))
_resets, _never = threading.Event(), threading.Event()


class _Plugin:
    def __init__(self, info):
        pass

    def memalloc(self, size, stream):
        ptr = ctypes.c_ulonglong()
        _alloc(ctypes.byref(ptr), size)
        return ptr.value

    def memfree(self, ptr, size, stream):
        pass

    def reset(self):
        _resets.set()
        _never.wait(0.5)


def begin(before=lambda: None):
    """The thread, which is within the plugin's reset. `before` is called when the plugin serves."""
    emm.register(_Plugin)
    context = emm.context_for_device(0)
    emm.Array(context, (100,))
    before()
    thread = threading.Thread(target=emm.lib.emm_context_reset, args=(context,))
    thread.start()
    _resets.wait()
    return thread
