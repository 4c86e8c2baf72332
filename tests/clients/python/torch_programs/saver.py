"""saver.py [use]: torch_memory_saver's interface and vLLM's allocator on PyTorch itself; its caching allocator stays
unless emm is PyTorch's allocator (use)."""
import sys

import emm
import emm.torch
import emm.torch_memory_saver
import emm.vllm
import torch

MIB = 1 << 20
if "use" in sys.argv:
    emm.torch.use()
saver = emm.torch_memory_saver.TorchMemorySaver()
torch.cuda.init()
context = emm.context_for_device(0)


def tensor(value, size=30 * MIB):
    made = torch.empty(size, dtype=torch.uint8, device="cuda")
    made.copy_(torch.full((size,), value, dtype=torch.uint8))
    return made


def is_full_of(made, value):
    return torch.equal(made.cpu(), torch.full(made.shape, value, dtype=torch.uint8))


def reserved(name):
    return emm.stats(emm.context_named(context, name)).reserved_bytes


# --- regions
with saver.region(tag="weights", enable_cpu_backup=True):
    kept = tensor(7)
    small = tensor(3, 1000)
with saver.region(tag="kv cache"):
    lost = tensor(8)
    with saver.disable():
        outside = tensor(5)
plain = tensor(9)
cache = emm.torch_memory_saver.pool_name("kv cache", False)
before = reserved("weights.kept") + reserved(cache)
assert before >= 60 * MIB
address = kept.data_ptr()
for _ in range(3):
    saver.pause()
    assert reserved("weights.kept") + reserved(cache) == 0
    assert is_full_of(plain, 9) and is_full_of(outside, 5)
    backup = saver.get_cpu_backup(kept[MIB:3 * MIB])
    assert (backup.device.type, backup.dtype, backup.shape) == ("cpu", torch.uint8, (2 * MIB,))
    assert torch.equal(backup, torch.full((2 * MIB,), 7, dtype=torch.uint8))
    assert torch.equal(saver.get_cpu_backup(small), torch.full((1000,), 3, dtype=torch.uint8))
    assert saver.get_cpu_backup(lost) is None and saver.get_cpu_backup(plain) is None
    saver.resume("weights")
    assert is_full_of(kept, 7) and kept.data_ptr() == address
    assert saver.get_cpu_backup(kept) is None
    saver.resume("kv cache")
    lost.copy_(torch.full(lost.shape, 8, dtype=torch.uint8))
    assert is_full_of(lost, 8)
assert reserved("weights.kept") + reserved(cache) == before

# --- an error in an inner region
with saver.region(tag="kv cache"):
    try:
        with saver.disable():
            tensor(1)
            raise KeyError
    except KeyError as error:
        kept_error = error  # and its frames
    tensor(2)
del kept_error

# --- a region of the program's own around emm's
with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
    tensor(1)
    with saver.disable():
        tensor(2)
    saver.pause("nothing of that name")
saver.pause("nothing of that name")

# --- the memory that a graph writes to
source = tensor(4)
graph = torch.cuda.CUDAGraph()
with saver.cuda_graph(graph, tag="graph", enable_cpu_backup=True):
    inside = torch.empty_like(source)
    inside.copy_(source)
graph.replay()
torch.cuda.synchronize()
assert is_full_of(inside, 4)
assert reserved("graph.kept") >= 30 * MIB
saver.pause("graph")
assert reserved("graph.kept") == 0
saver.resume("graph")
assert is_full_of(inside, 4)
source.copy_(torch.full(source.shape, 6, dtype=torch.uint8))
graph.replay()
torch.cuda.synchronize()
assert is_full_of(inside, 6)

# --- graphs without a pool in common share no memory, and return it
def intermediate(graph):
    """The address of memory that the graph alone uses."""
    with saver.cuda_graph(graph, tag="passing"):
        return torch.empty_like(source).copy_(source).data_ptr()


graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
assert len({intermediate(each) for each in graphs}) == 2
del graphs
saver.pause("passing")
saver.resume("passing")
assert emm.stats(emm.context_named(context, "passing")).live_bytes == 0

# --- an allocation in a tag that is paused
saver.pause("weights")
try:
    with saver.region(tag="weights", enable_cpu_backup=True):
        tensor(1)
    raise AssertionError("a paused pool gave memory out")
except RuntimeError as error:
    assert "paused" in str(error), error
saver.resume("weights")
del kept, small, lost, inside, graph, backup

# --- vLLM's allocator
allocator = emm.vllm.Allocator()
with allocator.use_memory_pool("runtime"):
    state = tensor(1)
    with allocator.use_memory_pool("kv_cache"):
        cached = tensor(2)
with allocator.use_memory_pool("vllm-weights"):
    passing = tensor(3)
    weights = tensor(4)
    del passing
assert reserved("runtime") >= 30 * MIB and reserved("kv_cache") >= 30 * MIB
live = emm.stats(emm.context_named(context, "vllm-weights")).live_bytes
assert 30 * MIB <= live < 60 * MIB, live  # memory freed meanwhile went back to emm
assert allocator.get_current_usage() >= 90 * MIB
for _ in range(3):
    allocator.sleep(("vllm-weights", "runtime"))
    assert reserved("runtime") + reserved("kv_cache") + reserved("vllm-weights") == 0
    allocator.wake_up(["vllm-weights"])
    assert allocator.asleep == {"kv_cache"}
    assert is_full_of(state, 1) and is_full_of(weights, 4)
    allocator.wake_up()
    cached.copy_(torch.full(cached.shape, 2, dtype=torch.uint8))
    assert is_full_of(cached, 2)
allocator.discard("kv_cache")
assert reserved("kv_cache") == 0 and is_full_of(weights, 4)
allocator.wake_up(["kv_cache"])
with allocator.use_memory_pool("kv_cache"):
    more = tensor(5)
assert is_full_of(more, 5)
del state, cached, weights, more
torch.cuda.empty_cache()
assert allocator.get_current_usage() == 0
kept_to_the_end = []
with allocator.use_memory_pool("runtime"):
    kept_to_the_end.append(tensor(1))
kept_to_the_end.append(kept_to_the_end)  # until the interpreter is gone
