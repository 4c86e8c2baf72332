"""Two processes of a program, a rank each and each on a device of its own, which reduce between them.

EMM_TORCH names a plugin of emm's, which then serves PyTorch as its backend. With EMM_TEST_RANKS=cpu the ranks
are on the CPU: that tries a program where there is no GPU, and measures nothing. NVLink multicast stays off.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

from nccl_memory import registered

COUNT = 2
ON_CPU = os.environ.get("EMM_TEST_RANKS") == "cpu"
MIB = 1 << 20
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
TELLING = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "REG"}


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
    """What `step` does on the device, recorded once and replayed; on the CPU it is done anew."""

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
    """Of all ranks together, from when each is ready until all are done."""
    synchronize()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        work()
    synchronize()
    dist.barrier()
    return time.perf_counter() - begin


def be_rank(rank, work):
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


def wait(processes):
    """The first status that is not 0; then the other ranks, which may wait for that one, are killed."""
    statuses = [None] * len(processes)
    while None in statuses:
        statuses = [process.poll() for process in processes]
        if any(statuses):
            break
        time.sleep(0.02)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
    return next((status for status in statuses if status), 0)


def start(work, tells=False):
    """Runs this program once for each rank; with `tells` it says how many buffers NCCL has registered."""
    if "EMM_TEST_RANK" in os.environ:
        be_rank(int(os.environ["EMM_TEST_RANK"]), work)
        return 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        logs = pathlib.Path(folder, "logs")
        logs.mkdir()
        told = {**TELLING, "NCCL_DEBUG_FILE": str(logs / "%p")} if tells else {}
        common = {**os.environ, **WITHOUT_MULTICAST, **told, "EMM_TEST_MEETING": str(pathlib.Path(folder, "meeting"))}
        processes = []
        for rank in range(COUNT):
            processes.append(subprocess.Popen([sys.executable, "-B", *sys.argv],
                                              env={**common, "EMM_TEST_RANK": str(rank)}))
            ending.callback(processes[-1].kill)
        status = wait(processes)
        if tells:
            print(f"figure registered-buffers {registered(path.read_text(errors='replace') for path in logs.iterdir())}")
        return status
