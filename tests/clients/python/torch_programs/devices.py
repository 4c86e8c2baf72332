"""devices.py: two devices, and threads that free what other threads have allocated."""
import ctypes
import threading

import emm
import emm.torch
import torch

emm.torch.use()
source = torch.arange(1024)  # whole blocks of 512 bytes
early_pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(early_pool, device=1):
    early = source.to("cuda:1")
first = source.to("cuda:0")
second = first.to("cuda:1")
assert torch.equal(second.cpu(), source)
assert torch.cuda.memory_allocated(0) == torch.cuda.memory_allocated(1) / 2 == source.nbytes
with torch.cuda.device(1):
    assert torch.empty(10, device="cuda").device.index == 1


class Range(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("size", ctypes.c_uint64), ("write", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32)]


def read_from_first(tensor):
    """A copy that stands for a kernel of the first device reads it. Without access, the driver ends the process."""
    ranges = Range(tensor.data_ptr(), tensor.nbytes, 0, 0)
    assert ctypes.CDLL("libcuda.so.1").simcuda_launch(None, None, None, ctypes.byref(ranges), ctypes.c_size_t(1)) == 0
    torch.cuda.synchronize()


pools = [early_pool, torch.cuda.MemPool()]  # from before and after the devices know each other
for pool in pools:
    with torch.cuda.use_mem_pool(pool, device=1):
        inside = source.to("cuda:1")
    assert emm.stats(emm.torch.context_of(pool, device=1)).live_bytes >= source.nbytes
    assert torch.equal(inside.to("cuda:0").cpu(), source)
    if torch.cuda.can_device_access_peer(0, 1):
        read_from_first(inside)
try:
    emm.torch.context_of((7, 7), device=0)
    raise AssertionError("a pool that is not there was found")
except RuntimeError as error:
    assert "it was not used there" in str(error), error
del first, second, early, inside, pools, pool, early_pool

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
