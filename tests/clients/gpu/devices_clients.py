#!/usr/bin/env python3
"""Programs on two GPUs: natively, with emm as PyTorch's backend, and under `emm run`. Skipped with one GPU.

    devices_clients.py FOLDER [--only NAME,...] [--times N] [--list]

What a program prints must be the same each way, but for figures, as in run_clients.py; `peak` is the most
device memory that both GPUs together had in use. Two ranks reduce over NCCL; NVLink multicast stays off.
"""
import sys

import run_clients
from run_clients import NO_CACHE, Program, Way, plugins, script

DEVICES = 2
# NCCL registers memory of cuMemAlloc only if this setting says so.
LEGACY = ("NCCL_LEGACY_CUDA_REGISTER", "1")


def backend(plugin, *environment):
    """emm as PyTorch's own allocator."""
    return Way(f"backend {plugin}", "", (("EMM_TORCH", plugin), *environment))


def legacy(way):
    return Way(f"{way.name}, legacy registration", way.plugin, (*way.environment, LEGACY), way.options)


def ranks(name):
    return script("start_ranks.py", name)


NATIVE = Way("natively")
PAGES, SEGMENTS = backend("pool:growth=vmm"), backend("pool:growth=segment")
RUN = Way("pool", "pool")
REGISTERED = (NATIVE, PAGES, SEGMENTS, RUN, legacy(NATIVE), legacy(SEGMENTS), legacy(RUN))


def programs():
    return [
        Program("ddp training", ranks("ddp_training.py"),
                (NATIVE, backend("pool"), RUN, Way("pool, no cache of PyTorch's", "pool", NO_CACHE)),
                "torch", times=3),
        Program("captured all-reduce", ranks("nccl_graph.py"), REGISTERED, "torch", times=3),
        Program("registered all-reduce", ranks("nccl_register.py"), REGISTERED, "torch", times=3),
        Program("torch sharing", script("torch_sharing.py", "1"), plugins("pool", "pool:growth=segment"), "torch"),
        Program("limit of each", script("limit.py", "8", str(DEVICES)), (Way("pool:max=8GiB", "pool:max=8GiB"),), "torch"),
        *(program for program in run_clients.driver_client(("pool", "pool:growth=segment", "async", "passthrough"))
          if program.name in ("driver client", "driver client peers")),
    ]


def devices_there():
    """As NVML counts them."""
    monitor = run_clients.Monitor(0)
    count = run_clients.ctypes.c_uint()
    if monitor.nvml is None or monitor.nvml.nvmlDeviceGetCount_v2(run_clients.ctypes.byref(count)):
        return 0
    return count.value


def main():
    parser = run_clients.options(__doc__.splitlines()[0])
    wish = parser.parse_args()
    if not wish.list and devices_there() < DEVICES:
        print(f"skipped: there are not {DEVICES} GPUs")
        return 77
    return run_clients.compare_all(programs(), parser, wish, lambda: run_clients.Monitor(DEVICES), "devices.json")


if __name__ == "__main__":
    sys.exit(main())
