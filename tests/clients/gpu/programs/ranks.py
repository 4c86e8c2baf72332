"""Shared parts of the ranks that start_ranks.py starts. Each has a device; they reduce between the devices.

EMM_TORCH names a plugin of emm's, which then serves PyTorch as its backend. With EMM_TEST_RANKS=cpu the ranks
are on the CPU: that tries a program where there is no GPU, and measures nothing.
"""
import os
import time

import torch
import torch.distributed as dist

COUNT = 2
ON_CPU = os.environ.get("EMM_TEST_RANKS") == "cpu"
MIB = 1 << 20


def device(rank):
    return torch.device("cpu") if ON_CPU else torch.device("cuda", rank)


def synchronize():
    if not ON_CPU:
        torch.cuda.synchronize()


def use_emm(plugin):
    os.environ["EMM_PLUGIN"] = plugin
    import emm.torch
    emm.torch.use()


def peak_reserved():
    """Bytes, as far as this process can tell: under `emm run` it cannot."""
    if ON_CPU:
        return 0
    if os.environ.get("EMM_TORCH"):
        import emm
        return emm.stats(emm.context_for_device(torch.cuda.current_device())).peak_reserved_bytes
    return torch.cuda.max_memory_reserved()


def summed(value):
    """A number, added up over the ranks."""
    total = torch.tensor(float(value), dtype=torch.float64, device=device(dist.get_rank()))
    dist.all_reduce(total)
    return total.item()


class Captured:
    """The work of `step`: on the device recorded once and replayed, on the CPU repeated."""

    def __init__(self, step):
        self.replay = step
        if ON_CPU:
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        # NCCL's watchdog asks for events on another thread meanwhile.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            step()
        self.replay = self.graph.replay


def seconds_of(work, times):
    """The time of all ranks together, from the moment when each is ready until all are done."""
    synchronize()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        work()
    synchronize()
    dist.barrier()
    return time.perf_counter() - begin


def run(work):
    """Does `work` as the rank that this process is."""
    rank = int(os.environ["EMM_TEST_RANK"])
    if os.environ.get("EMM_TORCH"):
        use_emm(os.environ["EMM_TORCH"])
    meeting = f"file://{os.environ['EMM_TEST_MEETING']}"
    if ON_CPU:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=COUNT)
    else:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", init_method=meeting, rank=rank, world_size=COUNT,
                                device_id=device(rank))
    work(rank)
    dist.barrier()
    dist.destroy_process_group()
