"""graphs.py: what a graph was captured with stays its own while others allocate, and goes with it."""
import emm
import emm.torch
import torch


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


def live():
    torch.cuda.synchronize()
    return emm.stats(emm.context_for_device(0)).live_bytes


emm.torch.use()
source = tensor(0)
captured(source)[0].reset()
before, allocated = live(), torch.cuda.memory_allocated()
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

del two
first.reset()
source.copy_(torch.full((1000,), 9.0))
assert one.cpu()[0] == 4  # outlives its graph
second.reset()
del one, first, second
assert live() == before, f"{live() - before} bytes stay"
assert torch.cuda.memory_allocated() == allocated
