"""out_of_memory.py: torch.OutOfMemoryError, observers, and the limit of a process."""
import re

import emm
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
assert re.match(r"CUDA out of memory\. Tried to allocate 4\.00 GiB\. GPU 0 has a total capacity of 1024\.00 MiB of which "
                r"[0-9.]+ MiB is free\. Of the allocated memory 0 bytes is allocated by PyTorch, and "
                r"[0-9.]+ (MiB|bytes) is reserved by PyTorch but unallocated\. .*4294967296 bytes asked for.* bytes free",
                text), text
assert torch.cuda.memory_stats()["num_ooms"] == 1
assert seen[0][:2] == (0, 4096 * MIB), seen
half = torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
assert "out of memory" in refused(600 * MIB)
del half
torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")  # freed memory is available again
with_cache = re.search(r"of which ([0-9.]+) MiB is free", refused(4096 * MIB))
free, total = torch.cuda.mem_get_info()
assert abs(float(with_cache[1]) - free / MIB) < 0.01, (with_cache, free)  # emm's cached memory does not count
assert "more than 1EB memory" in refused(1 << 61)

torch.cuda.set_per_process_memory_fraction(0.25)
assert torch.cuda.get_per_process_memory_fraction() == 0.25
text = refused(300 * MIB)
assert " is free. 256.00 MiB allowed; Of the allocated memory " in text, text
assert "314572800 bytes asked for" in text and "set_per_process_memory_fraction allows 268435456" in text, text
torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
torch.cuda.set_per_process_memory_fraction(1.0)
torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
