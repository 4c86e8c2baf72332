"""fallback.py: what the pluggable allocator gives where the backend cannot be compiled."""
import emm
import emm.torch
import torch

emm.torch.use()
assert torch.cuda.get_allocator_backend() == "pluggable"
tensor = torch.arange(1000).to("cuda")
assert torch.equal(tensor.cpu(), torch.arange(1000))
assert emm.stats(emm.context_for_device(0)).live_bytes == tensor.nbytes
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    raise AssertionError("there is no such memory")
except RuntimeError as error:
    assert str(error).startswith("CUDA out of memory. Tried to allocate"), error
