"""pools.py: torch.cuda.MemPool, whose memory is a pool of emm's, or segments of another allocator."""
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
known = emm.torch.context_of(pool)
assert emm.stats(known).live_bytes == emm.stats(context).live_bytes == MIB
blocks = [block for segment in segments_of(pool) for block in segment["blocks"]]
assert [block["address"] for block in blocks if block["requested_size"]] == [inside.data_ptr()], blocks
del inside
assert torch.cuda.memory_allocated() == MIB
assert torch.cuda.memory_stats()["segment.all.current"] == 0
inside = None
with torch.cuda.use_mem_pool(pool):
    inside = tensor()
    try:
        with torch.cuda.use_mem_pool(pool):
            raise AssertionError("a pool was used twice at a time")
    except RuntimeError as error:
        assert "already recording to mempool_id" in str(error), error
    assert pool.use_count() == 2
assert pool.use_count() == 1
side = torch.cuda.Stream()
with torch.cuda.use_mem_pool(pool):
    for _ in range(100):  # given out again when the other stream is done
        used = tensor()
        used.record_stream(side)
        del used
        torch.cuda.synchronize()
    assert emm.stats(known).reserved_bytes <= 32 * MIB, emm.stats(known).reserved_bytes
del pool
assert emm.stats(known).live_bytes == MIB  # a tensor in the pool keeps it
del inside
assert emm.stats(known).live_bytes == 0 and emm.stats(context).live_bytes == MIB

pool = torch.cuda.MemPool(emm.torch.allocator().allocator())
with torch.cuda.use_mem_pool(pool):
    inside = tensor()
assert len(segments_of(pool)) == 1
del inside, pool
assert emm.stats(context).live_bytes == MIB

pool = emm.torch.mem_pool()
with torch.cuda.use_mem_pool(pool):
    kept = [tensor()]  # until the interpreter is gone
kept[0].record_stream(side)
kept.append(kept)
