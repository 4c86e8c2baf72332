#!/usr/bin/env python3
"""torch_pinned.py PROGRAM [COUNT]: PyTorch's pinned memory; lines to compare, and figures.

PROGRAM is loader, requests, copies, graph or node. PINNED names a plugin of emm's that serves pinned memory; without
it PyTorch's own allocator does. EMM_TEST_NO_KERNELS leaves out what a device without kernels cannot do.
"""
import collections
import ctypes
import hashlib
import os
import pathlib
import platform
import random
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20
PLUGIN = os.environ.get("PINNED", "")
HAS_KERNELS = not os.environ.get("EMM_TEST_NO_KERNELS")


def figure(name, value):
    print(f"figure {name} {value}")


def pinned(size):
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


class Peaks:
    """The most bytes that were pinned; on emm also those in use, because PyTorch's own count of these is wrong."""

    def __init__(self):
        self.in_use = self.pinned = 0

    def look(self):
        stats = torch.cuda.host_memory_stats()
        self.in_use = max(self.in_use, stats["active_bytes.current"])
        self.pinned = max(self.pinned, stats["allocated_bytes.current"])

    def tell(self):
        figure("pinned-MiB", self.pinned / MIB)
        if PLUGIN:
            figure("in-use-MiB", self.in_use / MIB)


class Batches(Dataset):
    """Images of several sizes, and sequences as long as the longest one of their batch."""

    def __init__(self, count):
        chance = random.Random(1)
        sides = [160, 192, 224, 288, 320, 384, 448]
        self.shapes = [(32, 3, chance.choice(sides), chance.choice(sides)) if chance.random() < 0.7 else
                       (chance.randint(8, 64), chance.randint(40, 2048), 64) for _ in range(count)]

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, number):
        batch = torch.full(self.shapes[number], number % 251, dtype=torch.uint8)
        batch.view(-1)[::4096] = (number * 7) % 251
        return batch, torch.tensor([number])


def loader(count=400):
    """DataLoader(pin_memory=True), two batches ahead of the device."""
    peaks, hashed, total = Peaks(), hashlib.sha256(), torch.zeros((), device="cuda", dtype=torch.float64)
    batches = DataLoader(Batches(count), batch_size=None, num_workers=4, pin_memory=True, prefetch_factor=4)
    ahead, begin = collections.deque(), None
    for number, (batch, index) in enumerate(batches):
        if number == count // 10:  # from then on the sizes are known
            torch.cuda.synchronize()
            begin = time.perf_counter()
        ahead.append((batch.to("cuda", non_blocking=True), index.to("cuda", non_blocking=True)))
        del batch, index
        peaks.look()
        if len(ahead) < 3:
            continue
        on_device, place = ahead.popleft()
        if HAS_KERNELS:
            total += on_device.to(torch.float32).mean().to(torch.float64) * (place[0] + 1)
        if number % 16 == 0:
            hashed.update(on_device.cpu().numpy().tobytes())
    torch.cuda.synchronize()
    figure("batches/s", (count - count // 10) / (time.perf_counter() - begin))
    peaks.tell()
    print(hashed.hexdigest()[:16], total.item() if HAS_KERNELS else "")


def requests(count=20000):
    """Requests of all sizes, some of which a stream uses; what is live goes up and down."""
    chance, live, peaks = random.Random(2), [], Peaks()
    stream = torch.cuda.Stream()
    target = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    spent, timed, nanoseconds = 0, 0, time.perf_counter_ns
    for number in range(count):
        size = int(2 ** chance.uniform(10, 24))
        begin = nanoseconds()
        live.append(pinned(size))
        middle = nanoseconds()
        if chance.random() < 0.5:
            with torch.cuda.stream(stream):
                target[:size].copy_(live[-1], non_blocking=True)
        if number % 8 == 7:
            stream.synchronize()
        before = nanoseconds()
        while len(live) > 16 + 16 * (number // 1000 % 2):
            live.pop(chance.randrange(len(live)))
        if number >= count // 2:
            spent += middle - begin + nanoseconds() - before
            timed += 1
        if number % 16 == 0:
            peaks.look()
    figure("us-a-pair", spent / timed / 1000)
    peaks.tell()
    print("done")


def copy_unrecorded(target, source):
    """Uses the memory as a library does that PyTorch does not know of."""
    runtime = next(line.split()[-1] for line in open("/proc/self/maps", encoding="utf-8") if "libcudart.so" in line)
    status = ctypes.CDLL(runtime).cudaMemcpyAsync(
        ctypes.c_void_p(target.data_ptr()), ctypes.c_void_p(source.data_ptr()), ctypes.c_size_t(source.nbytes),
        ctypes.c_int(1), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    assert status == 0, status


def overwritten(copy, streams):
    """How many copies of tensors that were freed at once have the bytes of the tensors after them."""
    wrong = 0
    for number in range(20):
        source = pinned(4 * MIB).fill_(number)
        targets = []
        for stream in streams:
            with torch.cuda.stream(stream):
                if HAS_KERNELS:
                    torch.cuda._sleep(200_000_000)
                targets.append(torch.empty(4 * MIB, dtype=torch.uint8, device="cuda"))
                copy(targets[-1], source)
        address, others = source.data_ptr(), []
        del source
        while len(others) < 64 and (not others or others[-1].data_ptr() != address):
            others.append(pinned(4 * MIB))
            others[-1][:4096] = 255
        torch.cuda.synchronize()
        wrong += sum((target.cpu() != number).any().item() for target in targets)
        del others
    return wrong


def copies(_count=0):
    """Copies without waiting, on one stream and on several."""
    def recorded(target, source):
        target.copy_(source, non_blocking=True)

    streams = [torch.cuda.Stream() for _ in range(3)]
    for used in (streams[:1], streams, [torch.cuda.default_stream()]):
        print(f"{len(used)} streams: {overwritten(recorded, used)} copies are wrong")
    if HAS_KERNELS:
        waits = PLUGIN in ("async", "passthrough")  # their frees of pinned memory wait for the device
        print("the check would find it:", waits or overwritten(copy_unrecorded, streams[:1]) > 0)


def graph(count=50):
    """A graph that reads pinned memory allocated in its capture, and writes some."""
    captured, device = torch.cuda.CUDAGraph(), torch.zeros(4 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        given = pinned(4 * MIB).fill_(7)
        device.copy_(given, non_blocking=True)
        del given
        result = device.to("cpu", non_blocking=True)
    wrong = 0
    for _ in range(count):
        others = [pinned(4 * MIB).fill_(255) for _ in range(4)]
        captured.replay()
        torch.cuda.synchronize()
        wrong += (result != 7).any().item() + (device.cpu() != 7).any().item()
        del others
    print(f"{wrong} launches are wrong; pinned: {result.is_pinned()}")
    captured.reset()


def node_of(address):
    """The NUMA node that has a page."""
    get_mempolicy = {"x86_64": 239, "aarch64": 236}[platform.machine()]
    found = ctypes.c_int(-1)
    of_address = 3  # MPOL_F_NODE | MPOL_F_ADDR
    status = ctypes.CDLL(None, use_errno=True).syscall(get_mempolicy, ctypes.byref(found), None, ctypes.c_ulong(0),
                                                       ctypes.c_void_p(address), of_address)
    return found.value if status == 0 else -1


def cpus_of(node):
    text = pathlib.Path(f"/sys/devices/system/node/node{node}/cpulist").read_text(encoding="ascii")
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return {cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)} & os.sched_getaffinity(0)


def node(_count=0):
    """The share of pinned memory on the device's node, when a CPU of another node asks for it."""
    device = torch.cuda.get_device_properties(0)
    place = f"{device.pci_domain_id:04x}:{device.pci_bus_id:02x}:{device.pci_device_id:02x}.0"
    path = pathlib.Path("/sys/bus/pci/devices", place, "numa_node")
    nearest = max(0, int(path.read_text(encoding="ascii"))) if path.exists() else 0
    nodes = [int(each.name[4:]) for each in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")]
    far = next((cpus for other in nodes if other != nearest and (cpus := cpus_of(other))), None)
    if far:
        os.sched_setaffinity(0, far)
    host = pinned(256 * MIB)
    found = [node_of(host.data_ptr() + offset) for offset in range(0, host.nbytes, MIB)]
    figure("nodes", len(nodes))
    figure("asked-from-afar", int(far is not None))
    figure("on-the-nearest", found.count(nearest) / len(found))
    begin = time.perf_counter()
    for _ in range(10):
        host.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    figure("GB/s", 10 * host.nbytes / (time.perf_counter() - begin) / 1e9)
    print("done")


def main():
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
    if PLUGIN:
        os.environ["EMM_PLUGIN"] = PLUGIN
        import emm.torch
        emm.torch.use_pinned_memory()
    program = {"loader": loader, "requests": requests, "copies": copies, "graph": graph, "node": node}[sys.argv[1]]
    program(*map(int, sys.argv[2:]))
    kept.extend(pinned(1000) for _ in range(100))


kept = []  # until the interpreter is gone
if __name__ == "__main__":
    main()
