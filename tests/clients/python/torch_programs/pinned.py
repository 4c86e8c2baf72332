"""pinned.py: PyTorch's pinned memory on emm; what is copied without blocking is not given out too early."""
import gc

import emm
import emm.torch
import torch
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20
torch.cuda.set_device(0)
before = torch.arange(MIB, dtype=torch.uint8).pin_memory()  # PyTorch's own

emm.torch.use_pinned_memory()
emm.torch.use_pinned_memory()  # again: nothing happens
context = emm.context_for_device(0)


def live():
    torch.empty(1, pin_memory=True)  # memory that several streams have used goes back with the next allocation
    return emm.stats(context).host_live_bytes


def pinned(size, value=None):
    made = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    return made if value is None else made.fill_(value)


# --- sizes and figures: no powers of two
large = pinned(5 * MIB + 1)
assert large.is_pinned() and not torch.empty(10).is_pinned()
assert live() == 5 * MIB + 1
stats = torch.cuda.host_memory_stats()
assert stats["active_requests.current"] == 1, stats
assert stats["active_bytes.current"] == 5 * MIB + 1
assert stats["allocated_bytes.current"] == emm.stats(context).host_reserved_bytes >= 5 * MIB + 1
assert stats["num_host_alloc"] == 2 and stats["num_host_free"] == 1
empty = pinned(0)
assert empty.numel() == 0 and live() == 5 * MIB + 1
del large
assert live() == 0
reserved = emm.stats(context).host_reserved_bytes
device = before.to("cuda", non_blocking=True)  # the device has work
for turn in range(50):  # no stream has used these: they are given out again at once
    large = pinned(5 * MIB + 1)
assert emm.stats(context).host_reserved_bytes < reserved + 20 * MIB
torch.cuda.reset_peak_host_memory_stats()
torch.cuda.reset_accumulated_host_memory_stats()
stats = torch.cuda.host_memory_stats()
assert stats["active_bytes.peak"] == 5 * MIB + 1 and stats["active_bytes.allocated"] == 0
del large
assert before.is_pinned() and live() == 0

# --- a non-blocking copy: the program frees its source at once, and the next tensor writes over the source
sources, streams = [torch.full((MIB,), value, dtype=torch.uint8) for value in range(1, 9)], []
for turn in range(20):
    copies = []
    streams = streams or [torch.cuda.Stream() for _ in range(3)]
    for number, source in enumerate(sources):
        host = source.pin_memory()
        for stream in streams[:1 + number % 3]:  # by one stream, or by several
            with torch.cuda.stream(stream):
                copies.append((number, host[10:].to("cuda", non_blocking=True)))
        del host
        others = [pinned(MIB, 255) for _ in range(10)]
    torch.cuda.synchronize()
    for number, copy in copies:
        assert torch.equal(copy.cpu(), sources[number][10:]), (turn, number)
del copies, others
assert live() == 0
before.to("cuda", non_blocking=True)  # of PyTorch's own allocator
torch.arange(10).to("cuda", non_blocking=True)  # no stream uses it

# --- back to the host
device = sources[0].to("cuda")
for turn in range(20):
    host = device.to("cpu", non_blocking=True)
    assert host.is_pinned()
    torch.cuda.synchronize()
    assert torch.equal(host, sources[0])
del host


# --- a graph reads its pinned memory each time that it is launched, whenever the tensor was freed
def captured(frees_inside):
    graph = torch.cuda.CUDAGraph()
    result = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        inside = pinned(MIB, 7)
        result.copy_(inside, non_blocking=True)
        if frees_inside:
            del inside
        pinned(MIB)  # an unused block goes back
    return graph, result


for frees_inside in (True, False):
    graph, result = captured(frees_inside)
    others = [pinned(MIB, 9) for _ in range(40)]
    for turn in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert (result.cpu() == 7).all(), frees_inside
    del others
    reserved = emm.stats(context).host_reserved_bytes
    graph.reset()
    del graph
    torch.cuda.synchronize()
    assert live() == 0

# --- the cache goes back
torch._C._host_emptyCache()
assert emm.stats(context).host_reserved_bytes < reserved


# --- DataLoader
class Uneven(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, number):
        return torch.full((1 + number * 1013,), number, dtype=torch.int32)


loader = DataLoader(Uneven(), batch_size=None, pin_memory=True, num_workers=2)
for number, batch in enumerate(loader):
    assert batch.is_pinned()
    on_device = batch.to("cuda", non_blocking=True)
    del batch
    assert torch.equal(on_device.cpu(), Uneven()[number])
del loader, on_device
gc.collect()
torch.cuda.synchronize()
assert live() == 0

try:
    emm.torch.use_pinned_memory("another")
    raise AssertionError("a second pool was accepted")
except ValueError as error:
    assert "which serves already" in str(error), error
kept = [pinned(1000) for _ in range(100)]  # until the interpreter is gone
kept.append(kept)
