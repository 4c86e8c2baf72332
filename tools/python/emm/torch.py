"""emm behind PyTorch: as its allocator, or behind one of its memory pools.

    import emm.torch
    emm.torch.use()

    pool = emm.torch.mem_pool()                 # or for a part of a program
    with torch.cuda.use_mem_pool(pool):
        ...
    cache = emm.torch.mem_pool("kv-cache", "max=20GiB")     # with a manager of its own in emm

    emm.torch.use_pinned_memory()               # pinned host memory: DataLoader, pin_memory()

use() compiles a small library for the PyTorch that is installed, once for each version, and may come at any
time. Where that fails, a warning says why and torch.cuda.memory.CUDAPluggableAllocator serves, which has no
figures: use() must then come before PyTorch initializes CUDA. A stream that PyTorch has not made
(torch.cuda.ExternalStream) must outlive the tensors that were allocated on it.

With mem_pool() alone PyTorch's own caching allocator stays and asks emm for its segments.
"""
import ctypes
import os
import warnings
import weakref

import torch

from . import _torch_backend
from ._bridge import address, bridge, bridge_path
from ._error import Error
from ._process import context_for_device, context_named

# The methods of PyTorch's allocator object, and the functions to pass to them.
_HOOKS = {
    "set_record_stream_fn": "emm_torch_record_stream",
    "set_begin_allocate_to_pool": "emm_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "emm_torch_end_allocate_to_pool",
    "set_reset_fn": "emm_torch_empty_cache",
}
_used = None  # "emm" or "pluggable", as torch.cuda.get_allocator_backend() says
_allocators = {}  # by the name of their pool
_backend = None  # the library of the former
_before_use = weakref.WeakKeyDictionary()  # named pools that were made before use(): name and options


def allocator():
    """A torch.cuda.memory.CUDAPluggableAllocator that is served by emm."""
    made = torch.cuda.memory.CUDAPluggableAllocator(bridge_path, "emm_torch_malloc",
                                                    "emm_torch_free")
    for method, function in _HOOKS.items():
        getattr(made.allocator(), method)(address(function))
    return made


def use(pluggable=False):
    """Makes emm the allocator of the process. With `pluggable`, through CUDAPluggableAllocator."""
    global _used
    if _used is None:
        _used = "pluggable" if pluggable or not _install_backend() else "emm"
        if _used == "pluggable":
            _use_pluggable()
        else:
            for pool, name_and_options in list(_before_use.items()):
                _name(pool, *name_and_options)
        _before_use.clear()


_pinned = None  # name and options of the pool of pinned memory


def use_pinned_memory(name=None, plugin_options=None):
    """Makes emm the allocator of the process's pinned host memory. It may come at any time, with use() or without.

    With `name`, the memory comes from the pool of that name (emm.context_named), which has statistics and, by
    `plugin_options`, limits of its own."""
    global _pinned
    _refuse_options_without(name, plugin_options, "use_pinned_memory")
    wanted = name, plugin_options
    if _pinned is None:
        if name is not None:
            _check_name(name, plugin_options)
        try:
            _torch_backend.install_pinned(name, plugin_options)
        except _torch_backend.Unavailable as reason:
            raise RuntimeError(f"emm cannot serve PyTorch's pinned memory: {reason}") from reason
        _pinned = wanted
    if _pinned != wanted:
        raise ValueError(f"emm.torch.use_pinned_memory: expected {_pinned}, which serves already; found {wanted}")


def mem_pool(name=None, plugin_options=None, **options):
    """A torch.cuda.MemPool whose memory comes from emm; `options` go on to it.

    With `name`, it is the pool of that name (emm.context_named), which has statistics and, by
    `plugin_options`, limits of its own."""
    _refuse_options_without(name, plugin_options, "mem_pool")
    if _used == "emm":
        return _named_pool(name, plugin_options, options)
    if name is not None:
        made = torch.cuda.MemPool(_named_allocator(name, plugin_options), **options)
        if _used is None:
            _before_use[made] = name, plugin_options
        return made
    return torch.cuda.MemPool(allocator().allocator(), **options)


def context_of(pool, device=None):
    """The pool of emm (an emm_context) behind a torch.cuda.MemPool on the current device, or on `device`.

    `device` is as PyTorch takes it: 0, "cuda:0", torch.device("cuda:0"). Call after use(). `pool` may also be the id of a
    pool, as graph.pool() returns it. RuntimeError: there is no such pool."""
    device = torch.cuda.device(device).idx
    found = _backend and _backend.emm_torch_backend_pool_context(device, *getattr(pool, "id", pool))
    if not found:
        raise RuntimeError(f"no pool of emm's is behind {pool} on device {device}: it was not used there, "
                           "or it has an allocator of its own")
    return found


def _refuse_options_without(name, plugin_options, function):
    if plugin_options is not None and name is None:
        raise TypeError(f"emm.torch.{function}: plugin_options need a pool with a name: give name=NAME")


def _named_pool(name, plugin_options, options):
    if name is not None:
        _check_name(name, plugin_options)
    pool = torch.cuda.MemPool(**options)
    if name is not None:
        _name(pool, name, plugin_options)
    return pool


def _name(pool, name, plugin_options):
    _backend.emm_torch_backend_name_pool(*pool.id, os.fsencode(name), _encoded(plugin_options))


def _check_name(name, plugin_options):
    context_named(context_for_device(torch.cuda.current_device()), name, plugin_options)  # says what is wrong


def _encoded(plugin_options):
    return None if plugin_options is None else os.fsencode(plugin_options)


def _named_allocator(name, plugin_options):
    _check_name(name, plugin_options)
    if name not in _allocators:
        _allocators[name] = _immortal(_made_allocator(name, plugin_options))
    return _allocators[name]


def _immortal(made):
    """An allocator that is never freed: PyTorch's pools, and late frees, keep a bare pointer to it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


def _made_allocator(name, plugin_options):
    malloc, free = ctypes.c_void_p(), ctypes.c_void_p()
    status = bridge.emm_torch_pool(os.fsencode(name), _encoded(plugin_options), ctypes.byref(malloc), ctypes.byref(free))
    if status < 0:
        raise Error(status, "emm.torch.mem_pool: PyTorch can use 16 names of pools in one process")
    return torch._C._cuda_customAllocator(malloc.value, free.value)


def _install_backend():
    global _backend
    try:
        _backend = _torch_backend.install()
    except _torch_backend.Unavailable as reason:
        warnings.warn(f"emm.torch uses CUDAPluggableAllocator, which has no memory statistics: {reason}",
                      RuntimeWarning, stacklevel=3)
        return False
    return True


def _use_pluggable():
    global _used
    try:
        torch.cuda.memory.change_current_allocator(allocator())
    except RuntimeError as error:
        _used = None
        if "already initialized" not in str(error):
            raise
        raise RuntimeError(f"emm.torch.use() comes too late: {_what_came_before()}. Call it right after "
                           "`import torch`, before the program's first use of CUDA") from error


def _what_came_before():
    allocated = 0
    for device in range(torch.cuda.device_count()):
        try:
            allocated += torch.cuda.memory_stats(device).get("allocation.all.allocated", 0)
        except RuntimeError:  # another pluggable allocator, which counts nothing
            return "another allocator is in use already"
    return ("PyTorch has allocated memory on a GPU" if allocated else
            "PyTorch has initialized CUDA, as torch.cuda.init() and torch.cuda.set_device() do")
