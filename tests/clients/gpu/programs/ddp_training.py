"""start_ranks.py ddp_training.py [--steps N]: two ranks train a transformer on batches whose lengths vary (DistributedDataParallel).

Prints a digest of the losses of both, to the bit, how fast it was, and what the allocator had reserved.
"""
import argparse
import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the same results each time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks

WARM = 10  # steps that are not timed
WIDTH, LAYERS, BATCH, LONGEST = (768, 8, 16, 1024) if not ranks.ON_CPU else (32, 2, 2, 64)


def training(rank):
    """Does a step each time it is asked, and gives its loss. Each rank has lengths and data of its own."""
    torch.manual_seed(0)
    device = ranks.device(rank)
    layer = nn.TransformerEncoderLayer(WIDTH, WIDTH // 16, 4 * WIDTH, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).to(device)
    model = DistributedDataParallel(model, device_ids=None if ranks.ON_CPU else [rank])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    lengths = torch.Generator().manual_seed(1 + rank)
    data = torch.Generator(device).manual_seed(100 + rank)
    while True:
        length = int(torch.randint(32, LONGEST, (1,), generator=lengths))
        inputs = torch.randn(BATCH, length, WIDTH, generator=data, device=device)
        loss = (model(inputs) ** 2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def digest(losses):
    """A checksum of the losses of all ranks."""
    mine = torch.stack(losses)
    of_all = [torch.empty_like(mine) for _ in range(ranks.COUNT)]
    dist.all_gather(of_all, mine)
    bits = torch.cat(of_all).cpu().numpy().tobytes()
    return hashlib.sha256(bits).hexdigest()[:16]


def work(rank):
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # whose backward pass is not deterministic
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.utils.deterministic.fill_uninitialized_memory = False
    run = training(rank)
    losses = [next(run) for _ in range(WARM)]
    timed = wish.steps - WARM
    seconds = ranks.seconds_of(lambda: losses.append(next(run)), timed)
    reserved = ranks.summed(ranks.peak_reserved())
    found = digest(losses)
    if rank == 0:
        print(f"losses: {found}, the last {losses[-1].item():.6f}")
        print(f"figure steps/s {timed / seconds:.3f}")
        if reserved:
            print(f"figure reserved-MiB {reserved / ranks.MIB:.0f}")


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
wish = parser.parse_args()
if __name__ == "__main__":
    ranks.run(work)
