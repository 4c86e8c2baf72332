#!/usr/bin/env python3
"""Trains a small GPT on synthetic text, with AdamW and mixed precision.

Batches differ in length, as sentences do; a second stream brings the next one to the device while
the current one is worked on; every eighth step is followed by an evaluation.
"""
import argparse
import contextlib
import random

import torch
from torch.nn import functional as F

from gpt import GPT

VOCABULARY = 4096
CONTEXT = 512


def synthetic_text(rng, length):
    """Words of a toy language: each word likes a few followers, so there is something to learn."""
    word, text = rng.randrange(VOCABULARY), []
    for _ in range(length):
        text.append(word)
        word = (word * 17 + rng.choice((1, 5, 11))) % VOCABULARY
    return text


def batches(seed, count, batch, device):
    """Yields (inputs, targets); on a GPU each batch is copied while the one before it is in use."""
    rng = random.Random(seed)
    on_gpu = device.type == "cuda"
    copies = torch.cuda.Stream(device) if on_gpu else None

    def fetch():
        length = rng.randrange(CONTEXT // 4, CONTEXT + 1, 8)
        text = torch.tensor([synthetic_text(rng, length + 1) for _ in range(batch)])
        if not on_gpu:
            return text
        with torch.cuda.stream(copies):
            return text.pin_memory().to(device, non_blocking=True)

    ahead = fetch()
    for _ in range(count):
        text = ahead
        if on_gpu:
            current = torch.cuda.current_stream(device)
            current.wait_stream(copies)
            text.record_stream(current)
        ahead = fetch()
        yield text[:, :-1], text[:, 1:]


def loss_of(model, inputs, targets, device):
    half = torch.autocast(device.type, dtype=torch.bfloat16)
    with half if device.type == "cuda" else contextlib.nullcontext():
        logits = model(inputs)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main(argv=None, mark=lambda step: None):
    """Trains; calls mark(step) when a step begins, and once more after the last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    mark(0)
    model = GPT(VOCABULARY, CONTEXT, args.width, 8, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    held_out = list(batches(args.seed + 1, 2, args.batch, device))
    stream = batches(args.seed, args.steps, args.batch, device)
    for step, (inputs, targets) in enumerate(stream, start=1):
        mark(step)
        loss = loss_of(model, inputs, targets, device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 8 == 0:
            with torch.no_grad():
                check = sum(loss_of(model, *pair, device).item() for pair in held_out) / 2
            print(f"step {step}: loss {loss.item():.3f}, held out {check:.3f}", flush=True)
    mark(args.steps + 1)


if __name__ == "__main__":
    main()
