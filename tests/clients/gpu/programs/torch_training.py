"""torch_training.py [--steps N] [--minutes N]: trains a transformer on batches whose lengths vary.

Prints a digest of all losses, to the bit, and how fast it was. With --minutes it goes on for so long
and says what host memory it had after a fifth of the time and at the end.
"""
import argparse
import hashlib
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the same results each time

import torch
from torch import nn

WARM = 10  # steps that are not timed


def resident_mib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def training():
    """Does a step each time it is asked, and gives its loss."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    lengths = torch.Generator().manual_seed(1)
    data = torch.Generator(device).manual_seed(2)
    while True:
        length = int(torch.randint(32, 1024, (1,), generator=lengths))
        inputs = torch.randn(16, length, 768, generator=data, device=device)
        loss = (model(inputs) ** 2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.detach()


def measured(steps):
    losses, run = [], training()
    for _ in range(WARM):
        losses.append(next(run))
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps - WARM):
        losses.append(next(run))
    torch.cuda.synchronize()
    rate = (steps - WARM) / (time.perf_counter() - begin)
    bits = torch.stack(losses).cpu().numpy().tobytes()
    print(f"losses: {hashlib.sha256(bits).hexdigest()[:16]}, the last {losses[-1].item():.6f}")
    print(f"figure steps/s {rate:.3f}")


def endless(minutes):
    begin, early = time.monotonic(), None
    for step, loss in enumerate(training()):
        passed = time.monotonic() - begin
        if step % 50 == 0:
            loss.item()
        if early is None and passed > minutes * 12:
            early = resident_mib()
        if passed > minutes * 60:
            break
    late = resident_mib()
    print(f"figure host-MiB-after-a-fifth {early}\nfigure host-MiB-at-the-end {late}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--minutes", type=float)
    wish = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # whose backward pass is not deterministic
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.utils.deterministic.fill_uninitialized_memory = False
    if wish.minutes:
        endless(wish.minutes)
    else:
        measured(wish.steps)


if __name__ == "__main__":
    main()
