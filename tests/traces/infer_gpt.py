#!/usr/bin/env python3
"""Serves a small GPT: batches of prompts of varying length, keys and values cached token by token.

Two batches are in flight at any time, each on its own stream, one token each in turn; a batch that
is finished gives its cache back and a new one takes its place.
"""
import argparse
import contextlib
import random

import torch

from gpt import GPT, Cache

VOCABULARY = 4096
CONTEXT = 1024


class Request:
    """A batch of prompts and what has been generated for it so far."""

    def __init__(self, model, rng, device, stream):
        self.model, self.device, self.stream = model, device, stream
        self.batch = rng.choice((1, 2, 4, 8))
        self.wanted = rng.randrange(6, 25)
        self.caches = [Cache() for _ in model.blocks]
        length = rng.randrange(16, 513)
        self.tokens = torch.randint(VOCABULARY, (self.batch, length))
        self.length = 0
        self.generated = []

    def step(self):
        """Runs the prompt or one more token; True when the batch has all it wanted."""
        on_stream = torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext()
        with on_stream:
            tokens = self.tokens.to(self.device)
            logits = self.model(tokens, self.caches, self.length)[:, -1]
            self.length += tokens.shape[1]
            self.tokens = torch.multinomial(torch.softmax(logits.float() / 0.8, dim=-1), 1)
            self.generated.append(self.tokens)
        return len(self.generated) == self.wanted

    def finish(self):
        """The answer, brought to the host; the caches go when the request does."""
        on_stream = torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext()
        with on_stream:
            return torch.cat(self.generated, dim=1).cpu()


@torch.inference_mode()
def main(argv=None, mark=lambda step: None):
    """Serves; calls mark(step) when a request begins, and once more after the last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    device = torch.device(args.device)
    mark(0)
    model = GPT(VOCABULARY, CONTEXT, args.width, 8, args.layers).to(device).eval()
    if device.type == "cuda":
        model.to(torch.bfloat16)
        torch.cuda.synchronize(device)
        free_streams = [torch.cuda.Stream(device) for _ in range(2)]
    else:
        free_streams = [None, None]

    begun = tokens = 0
    active = []
    while active or begun < args.requests:
        while free_streams and begun < args.requests:
            begun += 1
            mark(begun)
            active.append(Request(model, rng, device, free_streams.pop(0)))
        for request in [r for r in active if r.step()]:
            tokens += request.finish().numel()
            active.remove(request)
            free_streams.append(request.stream)
        request = None
    mark(args.requests + 1)
    print(f"{args.requests} requests, {tokens} tokens generated", flush=True)


if __name__ == "__main__":
    main()
