"""out_of_memory.py: torch.OutOfMemoryError, observers, and the limit of a process."""
import emm.torch
import torch

MIB = 1 << 20
seen = []


def refused(size):
    """The text of the error."""
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError(f"{size} bytes were given")


emm.torch.use()
torch.cuda.init()
torch._C._cuda_attach_out_of_memory_observer(lambda *figures: seen.append(figures))
text = refused(4096 * MIB)
assert text.startswith("CUDA out of memory. Tried to allocate 4.00 GiB: 4294967296 bytes on device 0"), text
assert "bytes free" in text, text
assert torch.cuda.memory_stats()["num_ooms"] == 1
assert seen[0][:2] == (0, 4096 * MIB), seen
half = torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
assert "out of memory" in refused(600 * MIB)
del half
torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")  # what was freed is there again

torch.cuda.set_per_process_memory_fraction(0.25)
assert torch.cuda.get_per_process_memory_fraction() == 0.25
assert "set_per_process_memory_fraction allows 268435456" in refused(300 * MIB)
torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
torch.cuda.set_per_process_memory_fraction(1.0)
torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
