"""Numba on emm: NUMBA_CUDA_MEMORY_MANAGER=emm.numba makes emm its memory manager (NBEP 7).

What Numba and cuda.core allocate then comes from the plugin that EMM_PLUGIN names. Each allocation
is an emm_memory handle, so its finalizer may run on any thread, after a reset, or at the end of the
interpreter. Nothing is torn down here: the process ends with its memory, as emm's does.
"""
import contextlib
import functools
import pathlib
import threading
import weakref
from ctypes import byref, c_void_p

from cuda.bindings import driver as binding
from numba import cuda
from numba.cuda.cudadrv import driver

from . import _api
from ._api import UNORDERED, MemoryInfo, lib
from ._error import Error, check
from ._numba_ipc import IpcHandle, export
from ._process import memory_info

if "numba_cuda" not in pathlib.Path(driver.__file__).parts:
    raise ImportError(f"emm.numba: expected the package numba-cuda in numba.cuda's place, found Numba's own {driver.__file__}; "
                      "numba-cuda is not installed, or lies in a folder of PYTHONPATH, where its .pth file has no effect")

CUresult = binding.CUresult
RESULTS = {
    _api.EMM_E_OUT_OF_MEMORY: CUresult.CUDA_ERROR_OUT_OF_MEMORY,
    _api.EMM_E_OUT_OF_HOST_MEMORY: CUresult.CUDA_ERROR_OUT_OF_MEMORY,
    _api.EMM_E_INVALID_VALUE: CUresult.CUDA_ERROR_INVALID_VALUE,
    _api.EMM_E_NOT_SUPPORTED: CUresult.CUDA_ERROR_NOT_SUPPORTED,
    _api.EMM_E_CAPTURING: CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
    _api.EMM_E_RETIRED: CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED,
    _api.EMM_E_NO_CONTEXT: CUresult.CUDA_ERROR_INVALID_CONTEXT,
}
# The context, or the whole of emm, is gone, and needs no further calls.
GONE = (_api.EMM_E_RETIRED, _api.EMM_E_SHUT_DOWN, _api.EMM_E_FORKED)


def failure(status):
    """The error that Numba expects for a failed call of this thread."""
    error = Error(status)
    if error.driver_result:
        code = CUresult(error.driver_result)
    else:
        code = RESULTS.get(status, CUresult.CUDA_ERROR_UNKNOWN)
    return driver.CudaAPIError(code, str(error))


def release(memory, kept=None):
    """A finalizer; `kept` is the table that has held the object until now."""
    if kept is not None:
        kept.pop(memory, None)
    status = lib.emm_memory_release(memory)
    if status < 0 and status not in GONE:
        check(status)


class Outputs(threading.local):
    """The places for emm's outputs, made once for each thread, because making them costs more than the call."""

    def __init__(self):
        self.memory = c_void_p()
        self.info = MemoryInfo()
        self.to_memory = byref(self.memory)
        self.to_info = byref(self.info)


outputs = Outputs()


class MemoryManager(driver.BaseCUDAMemoryManager):
    """Serves one of Numba's contexts."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._emm_context = None
        self._resource = None
        # Objects that live only as long as a reference to them; see `own` in Numba.
        self.allocations = {}

    @property
    def interface_version(self):
        return 1

    def initialize(self):
        """Called each time that the context is pushed."""
        if self._emm_context is None:
            self._serve()

    @property
    def emm_context(self):
        """The context's name in the C API."""
        if self._emm_context is None:
            self._serve()
        return self._emm_context

    def _serve(self):
        found = c_void_p()
        status = lib.emm_context_from(int(self.context.handle), byref(found))
        if status < 0:
            raise failure(status)
        self._emm_context = found.value
        self._context = weakref.proxy(self.context)
        self._serve_cuda_core()

    def _serve_cuda_core(self):
        """Serves cuda.core's resource of the device, from which kernel arguments in host arrays come."""
        from ._cuda_core import MemoryResource

        device = getattr(self.context.device, "_dev", None)
        if device is not None:  # a context made by hand has no Device of Numba's
            self._resource = MemoryResource(self._emm_context, device.device_id)
            device.memory_resource = self._resource

    def _allocate(self, function, *arguments):
        """Returns (handle, emm's description of it)."""
        out = outputs
        status = function(self._emm_context or self.emm_context, *arguments, out.to_memory)
        if status < 0:
            raise failure(status)
        memory = out.memory.value
        lib.emm_memory_get_info(memory, out.to_info)
        return memory, out.info

    def memalloc(self, size):
        memory, info = self._allocate(lib.emm_memory_alloc, size, UNORDERED)
        return driver.MemoryPointer(self._context, info.ptr, size,
                                    finalizer=functools.partial(release, memory))

    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        flags = ((_api.EMM_HOST_MAPPED if mapped else 0)
                 | (_api.EMM_HOST_PORTABLE if portable else 0)
                 | (_api.EMM_HOST_WRITE_COMBINED if wc else 0))
        memory, info = self._allocate(lib.emm_memory_hostalloc, size, flags)
        return self._host_memory(memory, info.host, size, mapped)

    def mempin(self, owner, pointer, size, mapped=False):
        flags = _api.EMM_HOST_MAPPED if mapped else 0
        memory, info = self._allocate(lib.emm_memory_pin, pointer, size, flags, None, None)
        return self._host_memory(memory, info.host, size, mapped, owner)

    def _host_memory(self, memory, host, size, mapped, owner=None):
        if not mapped:
            return driver.PinnedMemory(self._context, host, size, owner=owner,
                                       finalizer=functools.partial(release, memory))
        return self._own(driver.MappedMemory, memory, host, size, owner=owner)

    def memallocmanaged(self, size, attach_global):
        flags = _api.EMM_ATTACH_GLOBAL if attach_global else _api.EMM_ATTACH_HOST
        memory, info = self._allocate(lib.emm_memory_managed, size, flags)
        return self._own(driver.ManagedMemory, memory, info.ptr, size)

    def _own(self, kind, memory, pointer, size, **more):
        finalizer = functools.partial(release, memory, self.allocations)
        pointer = kind(self._context, pointer, size, finalizer=finalizer, **more)
        self.allocations[memory] = pointer
        return pointer.own()

    def get_memory_info(self):
        return cuda.MemoryInfo(*memory_info(self.emm_context))

    def get_ipc_handle(self, memory):
        source = self.context.device.get_device_identity()
        return IpcHandle(memory, export(self.emm_context, memory), source)

    def reset(self):
        """Drops the memory of the CUDA context. Called at any time, with or without a current context. A
        manager that has made no call has nothing to drop."""
        self.allocations.clear()
        if self._emm_context is None:
            return
        if self._resource is not None:
            self._resource.dropped = True
        status = lib.emm_context_reset(self._emm_context)
        if status < 0 and status not in GONE:
            raise failure(status)
        self._emm_context = None

    @contextlib.contextmanager
    def defer_cleanup(self):
        context = self.emm_context
        status = lib.emm_defer_cleanup_begin(context)
        if status < 0:
            raise failure(status)
        try:
            yield
        finally:
            lib.emm_defer_cleanup_end(context)


_numba_memory_manager = MemoryManager
