"""late.py: use() when PyTorch has allocated already; and where that is too late."""
import emm.torch
import torch

torch.cuda.set_device(0)
before = torch.arange(3072).to("cuda")
try:
    emm.torch.use(pluggable=True)
    raise AssertionError("PyTorch has accepted a pluggable allocator")
except RuntimeError as error:
    assert "too late: PyTorch has allocated memory on a GPU." in str(error), error
    assert "right after `import torch`" in str(error), error

emm.torch.use()
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
