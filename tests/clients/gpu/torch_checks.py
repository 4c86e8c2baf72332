#!/usr/bin/env python3
"""torch_checks.py ALLOCATOR: what PyTorch relies on, one line each; exits 1 if something is wrong."""
import os
import sys
import threading

import torch

ALLOCATOR = sys.argv[1]
MIB = 1 << 20
failed = []


def report(name, good, found=""):
    print(f"{'good' if good else 'WRONG'}: {name}{': ' if found else ''}{found}", flush=True)
    if not good:
        failed.append(name)


def overwritten(record):
    """Frees memory that another stream still reads, and writes over whatever comes next."""
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(producer):
        torch.ones(4 * MIB, device="cuda")  # what is given out again is not new
        first = torch.full((MIB,), 1.0, device="cuda")
    consumer.wait_stream(producer)
    with torch.cuda.stream(consumer):
        torch.cuda._sleep(200_000_000)
        copy = first.clone()
    if record:
        first.record_stream(consumer)
    del first
    with torch.cuda.stream(producer):
        others = [torch.full((MIB,), 2.0, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    del others
    return copy.sum().item() != MIB


def check_record_stream():
    report("memory that was recorded for another stream is not given out too early",
           not overwritten(record=True))
    if ALLOCATOR != "passthrough":  # whose frees wait for the device
        report("the check would find it: without record_stream it is", overwritten(record=False))


def check_out_of_memory():
    for size in (1 << 42, 10 ** 15):
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
            report("out of memory is raised", False)
        except RuntimeError as error:
            text = str(error).split("\n")[0]
            report("out of memory names the bytes",
                   text.startswith("CUDA out of memory. Tried to allocate") and str(size) in text,
                   f"{type(error).__name__}: {text}")
    report("allocation goes on after it", torch.ones(10, device="cuda").sum().item() == 10)


def check_threads():
    """Tensors come and go in several threads, each freed by another one."""
    kept, wrong = [], []

    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for turn in range(200):
                tensor = torch.full((1 + turn * 37,), float(number), device="cuda")
                stream.synchronize()
                kept.append((number, tensor))
                if len(kept) > 8:
                    owner, other = kept.pop(0)
                    if other.sum().item() != owner * other.numel():
                        wrong.append(owner)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report("tensors are freed by other threads than made them", not wrong)


def check_graph():
    """What a graph was captured with stays its own while others allocate, and goes with it."""
    import emm
    context = emm.context_for_device(0)
    x = torch.ones(MIB, device="cuda")
    (x * 2).sum()
    torch.cuda.synchronize()
    before = emm.stats(context).live_bytes
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x + 1) * 3
    for _ in range(3):
        others = [torch.full((MIB,), 9.0, device="cuda") for _ in range(20)]
        graph.replay()
        del others
    report("a replayed graph computes in memory of its own", (y == 6).all().item())
    del y
    graph.reset()
    del graph
    torch.cuda.synchronize()
    report("nothing of a graph stays live", emm.stats(context).live_bytes <= before,
           f"{emm.stats(context).live_bytes - before} bytes more than before")


def check_pool():
    """The other way: PyTorch's own allocator, whose segments come from emm."""
    import emm.torch
    context = emm.context_for_device(0)
    pool = emm.torch.mem_pool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(32 * MIB, device="cuda")
    live = emm.stats(context).live_bytes
    report("a pool of PyTorch's takes its segments from emm", live >= 128 * MIB, f"{live} bytes")
    report("tensors in it work", x.sum().item() == 32 * MIB)
    del x, pool
    torch.cuda.empty_cache()
    live = emm.stats(context).live_bytes
    report("the segments go back with the pool", live == 0, f"{live} bytes")


def main():
    if ALLOCATOR == "mem_pool":
        check_pool()
    else:
        if ALLOCATOR != "native":
            os.environ["EMM_PLUGIN"] = ALLOCATOR
            import emm.torch
            emm.torch.use()
        check_record_stream()
        check_threads()
        if ALLOCATOR != "native":
            check_out_of_memory()
            check_graph()
            torch.cuda.empty_cache()
    global kept  # by the module, until the interpreter is gone
    kept = [torch.ones(1000, device="cuda") for _ in range(100)]
    kept.append(kept)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
