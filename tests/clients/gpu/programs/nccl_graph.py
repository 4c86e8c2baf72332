"""start_ranks.py nccl_graph.py [--replays N] [--mib N,...]: a captured all-reduce of two ranks, verified in each replay and timed.

NCCL registers the buffers of captured graphs by itself, where their memory lets it.
"""
import argparse

import torch
import torch.distributed as dist

import ranks

PERIOD = 1000  # whole numbers that float32 holds, however often they are added up here


def verified(rank, count, replays):
    """The number of wrong words on all ranks. Each replay reduces other numbers."""
    device = ranks.device(rank)
    numbers = torch.arange(count, device=device, dtype=torch.float32) % PERIOD
    work, turn = torch.empty_like(numbers), torch.zeros((), device=device)
    wrong = torch.zeros((), dtype=torch.int64, device=device)

    def step():
        turn.add_(1)
        work.copy_(numbers).add_(turn).mul_(rank + 1)
        dist.all_reduce(work)
        wrong.add_((work != (numbers + turn) * 3).sum())

    captured = ranks.Captured(step)
    for _ in range(replays):
        captured.replay()
    ranks.synchronize()
    return int(ranks.summed(wrong.item()))


def microseconds(rank, count, replays):
    buffer = torch.zeros(count, device=ranks.device(rank))
    captured = ranks.Captured(lambda: dist.all_reduce(buffer))
    ranks.seconds_of(captured.replay, 10)
    return ranks.seconds_of(captured.replay, replays) / replays * 1e6


def work(rank):
    ranks.summed(0)  # NCCL starts before a capture does
    for mib in wish.mib.split(","):
        count = int(mib) * ranks.MIB // 4
        wrong = verified(rank, count, wish.replays)
        took = microseconds(rank, count, wish.replays)
        if rank == 0:
            print(f"{mib} MiB, {wish.replays} replays: {wrong} words are wrong")
            print(f"figure us-{mib}-MiB {took:.2f}")


parser = argparse.ArgumentParser()
parser.add_argument("--replays", type=int, default=1000)
parser.add_argument("--mib", default="1,64")
wish = parser.parse_args()
if __name__ == "__main__":
    ranks.run(work)
