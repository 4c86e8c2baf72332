"""figures.py: torch.cuda.memory_allocated and its like, against emm's own figures."""
import emm
import emm.torch
import torch

MIB = 1 << 20

emm.torch.use()
emm.torch.use()  # again: nothing happens
assert torch.cuda.get_allocator_backend() == "emm"
assert torch.cuda.memory_allocated() == 0

large = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
small = torch.empty(1000, dtype=torch.uint8, device="cuda")
empty = torch.empty(0, device="cuda")
assert empty.data_ptr() == 0
stats = torch.cuda.memory_stats()
assert torch.cuda.memory_allocated() == 4 * MIB + 1024  # in blocks of 512 bytes, as PyTorch's own counts
assert stats["allocation.all.current"] == 2
assert stats["allocation.small_pool.current"] == 1
assert stats["allocated_bytes.large_pool.current"] == 4 * MIB
assert stats["active_bytes.all.current"] == 4 * MIB + 1024
assert stats["requested_bytes.all.current"] == 4 * MIB + 1000
assert stats["requested_bytes.small_pool.current"] == 1000
assert stats["inactive_split_bytes.all.current"] == 0
known = emm.stats(emm.context_for_device(0))
assert known.live_bytes == 4 * MIB + 1000
assert torch.cuda.memory_reserved() == known.reserved_bytes >= 4 * MIB

del large
torch.cuda.synchronize()
assert torch.cuda.memory_allocated() == 1024
assert torch.cuda.max_memory_allocated() == 4 * MIB + 1024
assert torch.cuda.max_memory_reserved() >= 4 * MIB
stats = torch.cuda.memory_stats()
assert stats["allocated_bytes.all.freed"] == 4 * MIB
assert "Allocated memory" in torch.cuda.memory_summary()

torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == emm.stats(emm.context_for_device(0)).reserved_bytes < 4 * MIB
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == 1024
assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved()
assert emm.stats(emm.context_for_device(0)).peak_live_bytes == 1000
torch.cuda.reset_accumulated_memory_stats()
assert torch.cuda.memory_stats()["allocated_bytes.all.allocated"] == 0
for size in 64 * MIB, 8 * MIB:  # the second peak is lower, and is not read while it lasts
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    more = torch.empty(size, dtype=torch.uint8, device="cuda")
    del more
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < size <= torch.cuda.max_memory_reserved() < 2 * size
many = [torch.empty(1, dtype=torch.uint8, device="cuda") for _ in range(10000)]
assert torch.cuda.memory_allocated() == 1024 + 512 * len(many)
assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
del many
assert torch.cuda.max_memory_reserved() >= torch.cuda.max_memory_allocated()
kept = [torch.empty(1000, device="cuda") for _ in range(100)]  # until the interpreter is gone
kept.append(kept)
