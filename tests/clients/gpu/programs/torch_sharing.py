"""torch_sharing.py [DEVICE]: two processes pass tensors of a GPU to each other (torch.multiprocessing).

The second process works on DEVICE, by default the first one's: what it has received it copies there, and back.
A process that comes to a halt says where, and ends.
"""
import faulthandler
import sys

import torch
import torch.multiprocessing as mp

PATIENCE = 60  # seconds


def worker(received, answers, device):
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    while (tensor := received.get()) is not None:
        tensor.copy_(tensor.to(device) + 1)
        torch.cuda.synchronize(device)
        torch.cuda.synchronize()
        answers.put((tensor.double().sum().item(), tensor.to(device) * 2))
        del tensor
    received.get()  # the answers live as long as this process


def main():
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    context = mp.get_context("spawn")
    received, answers = context.Queue(), context.Queue()
    device = f"cuda:{sys.argv[1] if len(sys.argv) > 1 else 0}"
    process = context.Process(target=worker, args=(received, answers, device), daemon=True)
    process.start()
    for size in (1000, 1 << 20, 10_000_000):
        tensor = torch.arange(size, dtype=torch.float32, device="cuda")
        received.put(tensor)
        total, doubled = answers.get()
        print(size, total, tensor.double().sum().item(), doubled.double().sum().item())
        del doubled
    received.put(None)
    received.put(None)
    process.join()
    print("the other process ended with", process.exitcode)


if __name__ == "__main__":
    main()
