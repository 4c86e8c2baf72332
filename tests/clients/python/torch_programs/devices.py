"""devices.py: two devices, and threads that free what other threads have allocated."""
import threading

import emm
import emm.torch
import torch

emm.torch.use()
source = torch.arange(1024)  # whole blocks of 512 bytes
first = source.to("cuda:0")
second = first.to("cuda:1")
assert torch.equal(second.cpu(), source)
assert torch.cuda.memory_allocated(0) == torch.cuda.memory_allocated(1) == source.nbytes
with torch.cuda.device(1):
    assert torch.empty(10, device="cuda").device.index == 1
del first, second

shared, count = [], 1000


def work():
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for turn in range(count):
            tensor = torch.empty(1 + turn * 37, device="cuda:0")
            if turn % 7 == 0:
                tensor.record_stream(other)
            shared.append(tensor)
            if len(shared) > 16:
                shared.pop(0)


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
shared.clear()
torch.cuda.empty_cache()
stats = torch.cuda.memory_stats(0)
assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 4 * count + 1
assert torch.cuda.memory_allocated(0) == emm.stats(emm.context_for_device(0)).live_bytes == 0
