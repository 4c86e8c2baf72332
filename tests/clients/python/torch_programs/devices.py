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
with torch.cuda.device(1):
    pools = [torch.cuda.MemPool(), torch.cuda.MemPool()]
for pool in pools:  # the second one's is made when the devices know each other
    with torch.cuda.use_mem_pool(pool, device=1):
        inside = source.to("cuda:1")
    assert emm.stats(emm.torch.context_of(pool, device=1)).live_bytes == source.nbytes
    assert torch.equal(inside.to("cuda:0").cpu(), source)
try:
    emm.torch.context_of(pools[0], device=0)
    raise AssertionError("a pool of device 1 was found on device 0")
except RuntimeError as error:
    assert "it was not used there" in str(error), error
del first, second, inside, pools, pool

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
assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 4 * count + 3
assert torch.cuda.memory_allocated(0) == emm.stats(emm.context_for_device(0)).live_bytes == 0
