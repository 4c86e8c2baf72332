"""late.py: use() when PyTorch has allocated already and has pools with names; and where that is too late."""
import emm
import emm.torch
import torch

MIB = 1 << 20

torch.cuda.set_device(0)
before = torch.arange(3072).to("cuda")
try:
    emm.torch.use(pluggable=True)
    raise AssertionError("PyTorch has accepted a pluggable allocator")
except RuntimeError as error:
    assert "too late: PyTorch has allocated memory on a GPU." in str(error), error
    assert "right after `import torch`" in str(error), error

pool = emm.torch.mem_pool("early", "max=64MiB")
with torch.cuda.use_mem_pool(pool):
    early = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")

def refuse_options_without_a_name():
    for function in emm.torch.mem_pool, emm.torch.use_pinned_memory:
        try:
            function(plugin_options="max=64MiB")
            raise AssertionError("options of no pool were dropped")
        except TypeError as error:
            assert f"emm.torch.{function.__name__}: " in str(error) and "expected name=NAME" in str(error), error


refuse_options_without_a_name()
emm.torch.use()
refuse_options_without_a_name()
assert torch.cuda.get_allocator_backend() == "emm"
after = before.clone()
side = torch.cuda.Stream()
before.record_stream(side)
after.record_stream(side)
assert torch.equal(before.cpu(), torch.arange(3072))
assert torch.cuda.memory_allocated() == after.nbytes
del before
assert torch.cuda.memory_allocated() == after.nbytes
del after
assert torch.cuda.memory_allocated() == 0
torch.cuda.empty_cache()

# A pool with a name keeps it, and its bound.
early = [early]
with torch.cuda.use_mem_pool(pool):
    early.append(torch.empty(8 * MIB, dtype=torch.uint8, device="cuda"))
    try:
        early.append(torch.empty(65 * MIB, dtype=torch.uint8, device="cuda"))
        raise AssertionError("the pool has no bound")
    except torch.OutOfMemoryError as error:
        assert "pool early" in str(error), error
live = emm.stats(emm.context_named(emm.context_for_device(0), "early")).live_bytes
assert live >= 12 * MIB, live
