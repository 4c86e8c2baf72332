"""Shared parts of the programs beside this file: their options, their clock, their line of JSON.

A program hands over a function that makes its step. A round is a fixed number of steps, whose sizes come from the
same seed each time, so every run has the same blocks live, however quick the machine is. The first round warms up,
and the rounds after it are timed until the seconds are over. No step waits for the GPU.

    PROGRAM [--allocator native|emm] [--seconds N | --rounds N] [--device cuda|cpu] [--small] [--wait]
"""
import argparse
import json
import os
import random
import sys
import time

import torch

SEED = 1


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--allocator", choices=("native", "emm"), default="native",
                        help="emm: PyTorch's backend of emm's package (emm.torch), on the plugin of EMM_PLUGIN")
    parser.add_argument("--seconds", type=float, default=25, help="from the first step on")
    parser.add_argument("--rounds", type=int, help="exactly so many, in place of --seconds")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="as little as still shows that it works")
    parser.add_argument("--wait", action="store_true", help="say `ready` and begin when a line comes")
    return parser.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def one_round(step, steps):
    """The loss of its last step."""
    sizes, loss = random.Random(SEED), None
    for _ in range(steps):
        loss = step(sizes)
    return loss


def figures(wish):
    """Peaks in bytes of what was live and of what was reserved."""
    if wish.device != "cuda":
        return {"live": None, "reserved": None}
    if wish.allocator == "emm":
        import emm
        stats = emm.stats(emm.context_for_device(0))
        return {"live": stats.peak_live_bytes, "reserved": stats.peak_reserved_bytes}
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        return {"live": None, "reserved": None}  # PyTorch counts nothing then
    return {"live": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}


def run(make, steps):
    """`make(device, small)` gives a function that does a step, with sizes drawn from the generator that it is given."""
    wish = options()
    steps = 2 if wish.small else steps
    if wish.allocator == "emm":
        import emm.torch
        emm.torch.use()
    if wish.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    begun = time.monotonic()
    torch.manual_seed(SEED)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.enable_cudnn_sdp(False)  # it compiles for each new length of a sequence
    device = torch.device(wish.device)
    step = make(device, wish.small)
    loss = one_round(step, steps)
    synchronize(device)
    warm, timed = time.monotonic(), 0
    while timed + 1 < wish.rounds if wish.rounds else timed == 0 or time.monotonic() - begun < wish.seconds:
        loss = one_round(step, steps)
        synchronize(device)
        timed += 1
    seconds = time.monotonic() - warm
    print(json.dumps({"program": os.path.basename(sys.argv[0]).removesuffix(".py"), "allocator": wish.allocator,
                      "steps_per_second": timed * steps / seconds if timed else None, "timed_steps": timed * steps,
                      "warm_up_seconds": warm - begun, "loss": loss.item(), **figures(wish)}), flush=True)


def trained(parameters, loss_of, device, rate=1e-4):
    """A step of training, in mixed precision on a GPU: `loss_of(sizes)` is the forward pass."""
    optimizer = torch.optim.AdamW(parameters, rate)

    def step(sizes):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(sizes)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
