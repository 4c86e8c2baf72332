"""emm behind PyTorch: as its allocator, or behind one of its memory pools.

    import emm.torch
    emm.torch.use()                             # before PyTorch's first CUDA allocation

    pool = emm.torch.mem_pool()                 # or for a part of a program
    with torch.cuda.use_mem_pool(pool):
        ...

With use() every allocation of PyTorch is one of emm's, ordered on PyTorch's current stream.
Graphs can be captured (torch.cuda.graph): their memory is kept until the graph is gone. PyTorch
counts nothing for allocators like this one, so torch.cuda.memory_allocated() and its like raise;
emm.stats(emm.context_for_device(0)) has the figures. Out of memory is a RuntimeError that begins
like PyTorch's own, "CUDA out of memory. Tried to allocate"; torch.OutOfMemoryError can only be
raised by PyTorch. A stream that PyTorch has not made (torch.cuda.ExternalStream) must outlive the
tensors that were allocated on it.

With mem_pool() PyTorch's own caching allocator stays and asks emm for its segments.
"""
import torch

from ._bridge import address, bridge_path

# The methods of PyTorch's allocator object, and what they are given.
_HOOKS = {
    "set_record_stream_fn": "emm_torch_record_stream",
    "set_begin_allocate_to_pool": "emm_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "emm_torch_end_allocate_to_pool",
    "set_reset_fn": "emm_torch_empty_cache",
}


def allocator():
    """A torch.cuda.memory.CUDAPluggableAllocator that is served by emm."""
    made = torch.cuda.memory.CUDAPluggableAllocator(bridge_path, "emm_torch_malloc",
                                                    "emm_torch_free")
    for method, function in _HOOKS.items():
        getattr(made.allocator(), method)(address(function))
    return made


def use():
    """Makes emm the allocator of the process. PyTorch refuses once it has allocated on a GPU."""
    torch.cuda.memory.change_current_allocator(allocator())


def mem_pool(**options):
    """A torch.cuda.MemPool whose segments come from emm; `options` go on to it."""
    return torch.cuda.MemPool(allocator().allocator(), **options)
