"""graphs.py: what a graph was captured with stays its own while others allocate, and goes with it."""
import ctypes

import emm
import emm.torch
import torch

MIB = 1 << 20


def tensor(value):
    return torch.full((1000,), float(value)).to("cuda")


def captured(source, pool=None):
    """A graph that copies `source` by way of memory that is freed in the capture."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        middle = source.clone()
        result = middle.clone()
        del middle
    return graph, result


def pool_figures():
    """Segments of pools: how many are small, and the bytes of those; how many there are."""
    stats = torch.cuda.memory_stats()
    return (stats["segment.small_pool.current"], stats["reserved_bytes.small_pool.current"],
            stats["segment.all.current"])


def live():
    """In all pools of emm's: each pool of PyTorch's is one."""
    found = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def visit(context, _):
        found.append(emm.stats(context).live_bytes)
        return 0

    torch.cuda.synchronize()
    emm.check(emm.lib.emm_foreach_context(ctypes.cast(visit, ctypes.c_void_p), None))
    return sum(found)


emm.torch.use()
source = tensor(0)
captured(source)[0].reset()
before, allocated = live(), torch.cuda.memory_allocated()
assert pool_figures() == (0, 0, 0)
first, one = captured(source)
second, two = captured(one, pool=first.pool())
for value in range(5):
    source.copy_(torch.full((1000,), float(value)))
    others = [tensor(77) for _ in range(20)]
    first.replay()
    second.replay()
    assert one.cpu()[0] == two.cpu()[999] == value
    assert all(other.cpu()[500] == 77 for other in others)
    del others
segments = [segment for segment in torch.cuda.memory._snapshot()["segments"]
            if tuple(segment["segment_pool_id"]) == tuple(first.pool())]
assert segments and all(block["size"] % 512 == 0 for block in segments[0]["blocks"])
assert pool_figures() == (1, 2 * MIB, 1)

del two
first.reset()
source.copy_(torch.full((1000,), 9.0))
assert one.cpu()[0] == 4  # outlives its graph
second.reset()
del one, first, second
assert live() == before, f"{live() - before} bytes stay"
assert torch.cuda.memory_allocated() == allocated
assert pool_figures() == (0, 0, 0)

large, one = captured(torch.empty(12 * MIB, dtype=torch.uint8, device="cuda"))
stats = torch.cuda.memory_stats()
assert stats["segment.large_pool.current"] == 2 and stats["reserved_bytes.large_pool.current"] == 24 * MIB, stats
large.reset()
del large
assert torch.cuda.memory_stats()["segment.all.current"] == 1  # the other segment has no tensor, and goes
assert live() == before + 12 * MIB, f"{live() - before} bytes"
del one
assert live() == before and torch.cuda.memory_stats()["segment.all.current"] == 0
