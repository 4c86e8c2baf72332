"""Numba's IpcHandle over emm's, which other processes open whatever the exporter's plugin is."""
import weakref
from ctypes import byref, memmove

from cuda.bindings import driver as binding
from numba import cuda
from numba.cuda.cudadrv import driver

from . import _api
from ._api import MemoryInfo, lib
from ._error import check
from ._process import made_by


def export(context, memory):
    """Exports the memory behind a pointer of Numba, as long as the pointer's owner lives."""
    described = made_by(lib.emm_get_ipc_handle, context, memory.device_pointer_value, memory.size,
                        kind=_api.IpcHandle)
    try:
        weakref.finalize(memory.owner, withdraw, context, described).atexit = False
    except TypeError:  # an owner without weak references: exported until a reset
        pass
    return described


def withdraw(context, described):
    lib.emm_release_ipc_handle(context, byref(described))


class IpcHandle(driver.IpcHandle):
    """A handle that emm opens in the importing process. emm adds the offset, counts openings, and copies
    where the memory cannot be mapped. `handle` is the part that CUDA itself opens, if the plugin's memory is
    of that kind."""

    def __init__(self, base, described, source_info):
        handle = binding.CUipcMemHandle()
        memmove(handle.getPtr(), described.handle, len(described.handle))
        super().__init__(base, handle, described.size, source_info, offset=described.offset)
        self.described = described

    def open(self, context):
        return self._open(_Direct, context)

    open_direct = open

    def open_staged(self, context):
        self._sentry_source_info()
        return self._open(_Staged, context)

    def _open(self, how, context):
        if self._impl is not None:
            raise ValueError("IpcHandle is already opened")
        if self.base is not None:
            raise ValueError("opening IpcHandle from original process")
        self._impl = how(self)
        return self._impl.open(context)

    def __reduce__(self):
        return IpcHandle._rebuild, (bytes(self.described), self.source_info)

    @classmethod
    def _rebuild(cls, described, source_info):
        return cls(None, _api.IpcHandle.from_buffer_copy(described), source_info)


class _Direct:
    def __init__(self, parent):
        self.described = parent.described
        self.memory = None

    def open(self, context):
        served = made_by(lib.emm_context_from, int(context.handle))
        self.memory = made_by(lib.emm_memory_open_ipc, served, byref(self.described))
        info = made_by(lib.emm_memory_get_info, self.memory, kind=MemoryInfo)
        self.pointer = driver.MemoryPointer(weakref.proxy(context), info.ptr, info.size)
        return self.pointer.own()

    def close(self):
        if self.memory is None:
            raise ValueError("IpcHandle not opened")
        memory, self.memory = self.memory, None
        check(lib.emm_memory_release(memory))


class _Staged:
    """A copy in memory of the opening context; the original is open in its own device's context."""

    def __init__(self, parent):
        self.parent = parent

    def open(self, context):
        source = driver.Device.from_identity(self.parent.source_info)
        direct = _Direct(self.parent)
        with cuda.gpus[int(source.id)]:
            original = direct.open(cuda.devices.get_context())
        copy = context.memalloc(self.parent.size)
        driver.device_to_device(copy, original, self.parent.size)
        context.synchronize()  # such a copy may go on after the call
        with cuda.gpus[int(source.id)]:
            direct.close()
        return copy

    def close(self):
        pass
