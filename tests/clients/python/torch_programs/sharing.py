"""sharing.py [DEVICE]: two processes pass tensors to each other (torch.multiprocessing).

The second one answers with tensors of DEVICE, by default of the first one's.
"""
import gc
import sys
from contextlib import nullcontext

import emm
import emm.torch
import torch
import torch.multiprocessing as mp


def worker(received, answers, device):
    emm.torch.use()
    while (tensor := received.get()) is not None:
        host = tensor.cpu()
        tensor.copy_(host + 1)
        torch.cuda.synchronize()
        answers.put((host.double().sum().item(), (host * 2).to(device)))
        del tensor
    received.get()  # the answers live as long as this process


def main():
    emm.torch.use()
    context = mp.get_context("spawn")
    received, answers = context.Queue(), context.Queue()
    device = f"cuda:{sys.argv[1] if len(sys.argv) > 1 else 0}"
    process = context.Process(target=worker, args=(received, answers, device))
    process.start()
    pool = emm.torch.mem_pool()
    for size, where in ((1000, nullcontext()), (1 << 20, nullcontext()), (1 << 20, torch.cuda.use_mem_pool(pool))):
        with where:
            tensor = torch.arange(size, dtype=torch.float32).to("cuda")
        for part in (tensor, tensor[10:], tensor):
            before = part.cpu().double().sum().item()
            received.put(part)
            total, doubled = answers.get(timeout=60)
            assert total == before
            assert part.cpu().double().sum().item() == before + part.numel()
            assert doubled.device == torch.device(device)
            assert doubled.cpu().double().sum().item() == 2 * before
            del doubled
        del tensor, part
    received.put(None)
    received.put(None)
    process.join()
    assert process.exitcode == 0
    gc.collect()
    torch.cuda.ipc_collect()
    assert torch.cuda.memory_allocated() == 0
    assert emm.stats(emm.context_for_device(0)).live_bytes == emm.stats(emm.torch.context_of(pool)).live_bytes == 0


if __name__ == "__main__":
    main()
