"""pools.py: torch.cuda.MemPool, with emm's segments and with those of another allocator."""
import emm
import emm.torch
import torch

MIB = 1 << 20


def tensor(size=MIB):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def segments_of(pool):
    return torch.cuda.memory.memory_snapshot(pool.id)


emm.torch.use()
context = emm.context_for_device(0)
pool = emm.torch.mem_pool()
with torch.cuda.use_mem_pool(pool):
    inside = tensor()
outside = tensor()
segment, = segments_of(pool)
assert segment["address"] <= inside.data_ptr() < segment["address"] + segment["total_size"]
assert not segment["address"] <= outside.data_ptr() < segment["address"] + segment["total_size"]
address = inside.data_ptr()
del inside
with torch.cuda.use_mem_pool(pool):
    assert tensor().data_ptr() == address
assert torch.cuda.memory_allocated() == MIB
assert torch.cuda.memory_stats()["segment.small_pool.current"] == 1
inside = None
with torch.cuda.use_mem_pool(pool):
    inside = tensor()
side = torch.cuda.Stream()
with torch.cuda.use_mem_pool(pool):
    used = tensor()
    address = used.data_ptr()
    used.record_stream(side)
    del used
    torch.cuda.synchronize()
    assert tensor().data_ptr() == address  # given out again when the other stream is done
del pool
assert emm.stats(context).live_bytes > MIB  # a tensor in the pool keeps it
del inside
assert emm.stats(context).live_bytes == MIB

pool = torch.cuda.MemPool(emm.torch.allocator().allocator())
with torch.cuda.use_mem_pool(pool):
    inside = tensor()
assert len(segments_of(pool)) == 1
del inside, pool
assert emm.stats(context).live_bytes == MIB

try:
    torch.cuda.MemPool(use_on_oom=True)
    raise AssertionError("use_on_oom was accepted")
except RuntimeError as error:
    assert "use_on_oom is not supported" in str(error), error

pool = emm.torch.mem_pool()
with torch.cuda.use_mem_pool(pool):
    kept = [tensor()]  # until the interpreter is gone
kept[0].record_stream(side)
kept.append(kept)
