"""start_ranks.py nccl_register.py [--times N] [--mib N]: all-reduces in memory that is registered with NCCL (ncclCommRegister).

The memory is PyTorch's, a part in the middle of it, and ncclMemAlloc's. What PyTorch's lacks of what ncclMemAlloc asks
for is a figure each; -1 for all: it is not of cuMemCreate.
"""
import argparse
import contextlib
import sys

import torch
import torch.distributed as dist

import ranks
from nccl_memory import Array, Driver, Nccl, lacks, nccl_library

ASKED = ("descriptor", "fabric", "rdma", "granularity")


def right(rank, buffer):
    """Whether reducing it gives what it should, at both ranks."""
    numbers = torch.arange(buffer.numel(), device=buffer.device, dtype=torch.float32) % 1000
    buffer.copy_(numbers).mul_(rank + 1)
    dist.all_reduce(buffer)
    return ranks.summed((buffer != numbers * 3).sum().item()) == 0


def microseconds(buffer, times):
    buffer.zero_()
    ranks.seconds_of(lambda: dist.all_reduce(buffer), 10)
    return ranks.seconds_of(lambda: dist.all_reduce(buffer), times) / times * 1e6


def communicator(device):
    """PyTorch's own."""
    return dist.group.WORLD._get_backend(device)._comm_ptr()


@contextlib.contextmanager
def registered(nccl, buffer):
    used = communicator(buffer.device)
    handle = nccl.register(used, buffer.data_ptr(), buffer.numel() * buffer.element_size())
    yield
    ranks.synchronize()
    nccl.deregister(used, handle)


def reduce(rank, nccl, name, buffer):
    """Registered, and again when that is over: after which NCCL must not use what it knew of it."""
    with registered(nccl, buffer):
        good, took = right(rank, buffer), microseconds(buffer, wish.times)
    again, without = right(rank, buffer), microseconds(buffer, wish.times)
    if rank == 0:
        print(f"{name}: {'right' if good else 'WRONG'}, and then {'right' if again else 'WRONG'}")
        print(f"figure {name}-registered-us {took:.2f}\nfigure {name}-us {without:.2f}")


def tell_what_it_lacks(rank, buffer, address):
    driver = Driver()
    mine, reference = driver.memory(buffer.data_ptr()), driver.memory(address)
    found = lacks(mine, reference) if mine and reference else ()
    if rank == 0:
        for each in ASKED:
            print(f"figure lacks-{each} {int(each in found) if mine and reference else -1}")


def work(rank):
    ranks.summed(0)  # NCCL starts
    path = nccl_library()
    if not path:
        sys.exit("PyTorch has NCCL inside: its functions cannot be called")
    nccl, count, device = Nccl(path), wish.mib * ranks.MIB // 4, ranks.device(rank)
    neighbours = [torch.empty(1000, device=device) for _ in range(2)]
    buffer = torch.empty(count, device=device)
    reduce(rank, nccl, "tensor", buffer)
    reduce(rank, nccl, "part", buffer[count // 4:count // 2])
    address = nccl.allocate(4 * count)
    tell_what_it_lacks(rank, buffer, address)
    reduce(rank, nccl, "ncclMemAlloc", torch.as_tensor(Array(address, count), device=device))
    ranks.synchronize()
    nccl.free(address)
    for _ in range(20):  # registered memory goes back, and other memory takes its place
        del buffer
        buffer = torch.empty(count, device=device)
        with registered(nccl, buffer):
            good = right(rank, buffer)
        if not good:
            sys.exit("wrong in memory that another tensor had before")
    del neighbours


parser = argparse.ArgumentParser()
parser.add_argument("--times", type=int, default=200)
parser.add_argument("--mib", type=int, default=64)
wish = parser.parse_args()
if __name__ == "__main__":
    ranks.run(work)
