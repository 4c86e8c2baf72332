"""pinned_pool.py: pinned memory from a pool with a name and a limit, used by two devices and several threads."""
import threading

import emm
import emm.torch
import torch

MIB = 1 << 20

try:
    emm.torch.use_pinned_memory("pinned", "no_such_option=1")
    raise AssertionError("an option that the plugin does not have was accepted")
except emm.Error as error:
    assert "no_such_option" in str(error), error
emm.torch.use_pinned_memory("pinned", "host_max=64MiB")
context = emm.context_named(emm.context_for_device(0), "pinned", "host_max=64MiB")


def pinned(size):
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


# --- the limit, and what waits for several streams, or for another device, when it is reached
here, there = [torch.cuda.Stream() for _ in range(2)], [torch.cuda.Stream("cuda:1")]
for turn in range(6):
    host = pinned(40 * MIB)
    for stream in (here, there)[turn % 2]:
        with torch.cuda.stream(stream):
            on_device = torch.empty_like(host, device="cuda").copy_(host, non_blocking=True)
    del host
assert emm.stats(context).host_reserved_bytes <= 64 * MIB
assert emm.stats(emm.context_for_device(0)).host_reserved_bytes == 0
kept = pinned(40 * MIB)
try:
    pinned(40 * MIB)
    raise AssertionError("the limit was exceeded")
except RuntimeError as error:
    words = str(error)
    assert f"emm cannot allocate {40 * MIB} bytes of pinned memory: " in words and "host_max" in words, words
del kept, on_device

# --- used by a device other than the one that it belongs to
source = torch.arange(MIB, dtype=torch.uint8)
for turn in range(20):
    host = source.pin_memory()
    copies = [host.to(f"cuda:{device}", non_blocking=True) for device in ((1,), (1, 0))[turn // 4 % 2]]
    del host
    others = [pinned(MIB).fill_(255) for _ in range(60)]  # as many as the limit allows
    del others
    for device in range(2):
        torch.cuda.synchronize(device)
    for copy in copies:
        assert torch.equal(copy.cpu(), source)

# --- threads, each of which frees what another has made
wrong, shared, lock = [], [], threading.Lock()


def work(number):
    stream = torch.cuda.Stream()
    for turn in range(100):
        host = torch.full((1 + turn * 997,), number, dtype=torch.uint8).pin_memory()
        with torch.cuda.stream(stream):
            copy = host.to("cuda", non_blocking=True)
        with lock:
            shared.append((number, host, copy, stream))
            owner, _host, other, producer = shared.pop(0)
        producer.synchronize()
        if not (other.cpu() == owner).all():
            wrong.append(owner)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
shared.clear()
host = copies = copy = None
for device in range(2):
    torch.cuda.synchronize(device)
pinned(1)
assert emm.stats(context).host_live_bytes == 0
