#!/usr/bin/env python3
"""torch_programs.py PROGRAM ALLOCATOR COUNT: one program on one allocator; the result is a line of JSON.

PROGRAM is train, graph, compiled or infer; ALLOCATOR is native or a plugin of emm's. torch_clients.py runs it.
"""
import hashlib
import itertools
import json
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "traces"))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the same results each time

import torch

import infer_gpt
import train_gpt

WARM = 60  # steps that are not timed
BATCH = 16


def digest(tensors):
    """A digest of all bits of the tensors."""
    data = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()[:16]


def batches(count):
    """The batches of train_gpt.py. Their words are written before the timed part."""
    rng = random.Random(1)
    texts = [train_gpt.synthetic_text(rng, train_gpt.CONTEXT + 1) for _ in range(256)]
    endless = itertools.cycle(texts)
    train_gpt.synthetic_text = lambda rng, length: next(endless)[:length]
    return train_gpt.batches(1, count, BATCH, torch.device("cuda"))


class Training:
    def __init__(self, capturable=False):
        torch.manual_seed(1)
        self.model = train_gpt.GPT(train_gpt.VOCABULARY, train_gpt.CONTEXT, 512, 8, 6).to("cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, capturable=capturable)

    def step(self, inputs, targets):
        loss = train_gpt.loss_of(self.model, inputs, targets, torch.device("cuda"))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()


class Clock:
    """From the first step that counts to the end, the GPU's work included."""

    begun = 0.0

    def begin(self):
        torch.cuda.synchronize()
        self.begun = time.perf_counter()

    def end(self):
        torch.cuda.synchronize()
        return time.perf_counter() - self.begun


def train(count):
    clock, training, losses = Clock(), Training(), []
    for step, (inputs, targets) in enumerate(batches(WARM + count)):
        if step == WARM:
            clock.begin()
        losses.append(training.step(inputs, targets))
    seconds = clock.end()
    return count / seconds, losses, {"last loss": losses[-1].item()}


def graph(count):
    """One step is captured, and replayed with a new batch each time."""
    training, clock, losses = Training(capturable=True), Clock(), []
    text = torch.randint(train_gpt.VOCABULARY, (count + 1, BATCH, 257), device="cuda")
    inputs, targets = text[0, :, :-1].clone(), text[0, :, 1:].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            training.step(inputs, targets)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    training.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(captured):
        loss = training.step(inputs, targets)
    clock.begin()
    for step in range(count):
        inputs.copy_(text[step + 1, :, :-1])
        targets.copy_(text[step + 1, :, 1:])
        captured.replay()
        losses.append(loss.clone())
    seconds = clock.end()
    return count / seconds, losses, {"last loss": losses[-1].item()}


def compiled(count):
    """By torch.compile(mode="reduce-overhead"), whose graphs share a pool that PyTorch rewinds."""
    training, clock, losses = Training(), Clock(), []
    training.model = torch.compile(training.model, mode="reduce-overhead")
    text = torch.randint(train_gpt.VOCABULARY, (WARM + count, BATCH, 257), device="cuda")
    for step in range(WARM + count):
        if step == WARM:
            clock.begin()
        torch.compiler.cudagraph_mark_step_begin()
        inputs, targets = text[step, :, :-1].clone(), text[step, :, 1:].clone()
        losses.append(training.step(inputs, targets).clone())
    seconds = clock.end()
    skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    if skipped:
        raise RuntimeError(f"{skipped} graphs were not captured")
    return count / seconds, losses, {"last loss": losses[-1].item()}


def infer(count):
    clock, answers, finish = Clock(), [], infer_gpt.Request.finish

    def kept(request):
        answers.append(finish(request))
        return answers[-1]

    infer_gpt.Request.finish = kept
    infer_gpt.main(["--requests", "4"])  # not timed
    answers.clear()
    clock.begin()
    infer_gpt.main(["--requests", str(count)])
    seconds = clock.end()
    tokens = sum(answer.numel() for answer in answers)
    return tokens / seconds, answers, {"tokens": tokens}


def main():
    program, allocator, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Told to warn only, the backward pass of attention stays as it is: it adds up in any order.
    torch.use_deterministic_algorithms(True, warn_only=program == "infer")
    torch.backends.cuda.enable_cudnn_sdp(False)  # whose backward pass is not deterministic
    torch.utils.deterministic.fill_uninitialized_memory = False
    if allocator != "native":
        os.environ["EMM_PLUGIN"] = allocator
        import emm.torch
        emm.torch.use()
    rate, computed, more = {"train": train, "graph": graph, "compiled": compiled, "infer": infer}[program](count)
    print(json.dumps({"program": program, "allocator": allocator, "rate": rate,
                      "digest": digest(computed), "reserved": torch.cuda.max_memory_reserved(),
                      "live": torch.cuda.max_memory_allocated(), **more}))


if __name__ == "__main__":
    main()
