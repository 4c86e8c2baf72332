"""The parts of PyTorch that emm.torch.mem_pool() and its callers use, over emm's real functions.

Tensors are ranges of device memory on the driver in use. As in PyTorch, a pool keeps what was freed in it
until it ends, and has no reference on its allocator.
"""
import contextlib
import ctypes
import sys
import types
import weakref

import emm

MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


def driver(name, *kinds):
    function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(emm.lib.emm_driver_entry(name.encode(), 12000))

    def call(*arguments):
        result = function(*arguments)
        assert result == 0, (name, result)
    return call


class CustomAllocator:
    def __init__(self, malloc, free):
        self.malloc, self.free = MALLOC(malloc), FREE(free)


class OwnAllocator:
    """PyTorch's own: of the driver."""

    def malloc(self, size, device, stream):
        ptr = ctypes.c_ulonglong()
        driver("cuMemAlloc", ctypes.c_void_p, ctypes.c_size_t)(ctypes.byref(ptr), size)
        return ptr.value

    def free(self, ptr, size, device, stream):
        driver("cuMemFree", ctypes.c_ulonglong)(ptr)


DEFAULT = OwnAllocator()


class MemPool:
    made = 0
    living = weakref.WeakValueDictionary()  # by id

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        MemPool.made += 1
        self.id = (MemPool.made, 0)
        self.allocator, self.cached = weakref.ref(allocator or DEFAULT), []
        MemPool.living[self.id] = self

    def take(self, size):
        assert self.allocator() is not None, "the allocator has ended before its pool"
        return self.allocator().malloc(size, 0, None)

    def give(self, ptr, size):
        assert self.allocator() is not None, "the allocator has ended before its pool"
        self.allocator().free(ptr, size, 0, None)

    def __del__(self):
        if CURRENT:
            ABORTED.append("a pool has ended while another was in use")
        for block in self.cached:
            self.give(*block)


class Tensor:
    """Bytes on the device. Ends in its pool while that lives, and in its allocator afterwards."""

    def __init__(self, size):
        pool = CURRENT[-1]
        self.size, self.ptr, self.pool, self.allocator = size, pool.take(size), weakref.ref(pool), pool.allocator
        driver("cuMemsetD8", ctypes.c_ulonglong, ctypes.c_ubyte, ctypes.c_size_t)(self.ptr, 0, size)

    is_cuda, dtype = True, "uint8"

    @property
    def shape(self):
        return self.size

    nbytes = shape

    def is_contiguous(self):
        return True

    def data_ptr(self):
        return self.ptr

    def fill(self, value):
        driver("cuMemsetD8", ctypes.c_ulonglong, ctypes.c_ubyte, ctypes.c_size_t)(self.ptr, value, self.size)
        return self

    def bytes(self):
        host = ctypes.create_string_buffer(self.size)
        driver("cuMemcpyDtoH", ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_size_t)(host, self.ptr, self.size)
        return host.raw

    def __del__(self):
        if pool := self.pool():
            pool.cached.append((self.ptr, self.size))
        else:
            self.allocator().free(self.ptr, self.size, 0, None)


class HostTensor:
    def __init__(self, size, dtype, device):
        assert (dtype, device) == ("uint8", "cpu")
        self.memory = ctypes.create_string_buffer(size)

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def bytes(self):
        return self.memory.raw


@contextlib.contextmanager
def graph(cuda_graph, pool=None, stream=None, capture_error_mode="global"):
    """Tensors made inside are in the pool with that id."""
    with use_mem_pool(MemPool.living[pool]):
        yield


CURRENT = []
WAITS = []  # of the allocator for its streams
ABORTED = []  # messages with which PyTorch would end the process


@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    CURRENT.append(pool)
    try:
        yield
    finally:
        CURRENT.pop()


def empty_cache():
    """As PyTorch's own allocator, which does not wait while a pool is in use."""
    if not CURRENT:
        WAITS.append("empty_cache")


def install():
    """Puts it in PyTorch's place, with the primary context of device 0 current, and returns it."""
    torch = types.ModuleType("torch")
    torch.cuda = types.ModuleType("torch.cuda")
    torch.version = types.SimpleNamespace(cuda="13.0")
    torch._C = types.SimpleNamespace(_cuda_customAllocator=CustomAllocator)
    torch.cuda.MemPool, torch.cuda.use_mem_pool = MemPool, use_mem_pool
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.current_device = lambda: 0
    torch.empty = HostTensor
    torch.cuda.graph = graph
    torch.cuda.get_allocator_backend, torch.cuda.device_count = lambda: "native", lambda: 1
    torch.cuda.memory_stats = lambda device: {"num_sync_all_streams": len(WAITS)}
    torch.cuda.empty_cache = empty_cache
    sys.modules.update({"torch": torch, "torch.cuda": torch.cuda})
    context = ctypes.c_void_p()
    driver("cuInit", ctypes.c_uint)(0)
    driver("cuDevicePrimaryCtxRetain", ctypes.c_void_p, ctypes.c_int)(ctypes.byref(context), 0)
    driver("cuCtxSetCurrent", ctypes.c_void_p)(context)
    return torch
