#!/usr/bin/env python3
"""CuPy on its own pool and on emm, side by side. Needs a GPU.

    cupy_clients.py FOLDER [--scale 2] [--times 5]

Each allocator has processes of its own, which take turns. What is computed must be the same to the
bit; what an allocation costs, how fast a program of many small arrays runs and how much memory was
reserved at most is printed as a table of medians, with the least of a pair's in parentheses.
"""
import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ALLOCATORS = ["cupy", "cupy async", "pool", "pool unordered", "pool:growth=segment"]
MIB = 1 << 20


def set_up(allocator):
    """Chooses it; returns what tells the bytes that it holds."""
    import cupy
    if allocator == "cupy":
        return cupy.get_default_memory_pool().total_bytes
    if allocator == "cupy async":
        pool = cupy.cuda.MemoryAsyncPool()
        cupy.cuda.set_allocator(pool.malloc)
        return pool.total_bytes
    os.environ["EMM_PLUGIN"], _, how = allocator.partition(" ")
    import emm.cupy
    emm.cupy.use(ordered=how != "unordered")
    return lambda: emm.stats(emm.context_for_device(0)).peak_reserved_bytes


def pair_ns(alloc, size, count):
    """The time of an allocation and its free from Python, once the allocator has its memory from the driver."""
    for _ in range(count // 10):
        alloc(size)
    begun = time.perf_counter()
    for _ in range(count):
        alloc(size)
    return (time.perf_counter() - begun) / count * 1e9


def compute(rounds):
    """Arrays of many sizes come and go, on the default stream and on two others."""
    import cupy
    random = cupy.random.RandomState(7)
    streams = [cupy.cuda.Stream.null] + [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    sums, kept = [], []
    for turn in range(rounds):
        with streams[turn % 3]:
            n = 1000 + turn * 7919 % 200_000
            x = cupy.arange(n, dtype=cupy.float32)
            y = cupy.sqrt(x * 2 + 1) - x / 3
            kept.append(cupy.sort(y)[::2] + y[::2])
            if len(kept) > 20:
                kept.pop(turn % 20)
            sums.append(y.sum() + kept[-1].mean())
            cupy.cuda.get_current_stream().synchronize()
    matrix = random.standard_normal((500, 500), dtype=cupy.float32)
    sums.append((matrix @ matrix.T).trace())
    result = b"".join(float(value).hex().encode() for value in sums)
    return hashlib.sha256(result).hexdigest()[:16]


def pipeline(rounds):
    """A chain of operations on the default stream, nothing waits: arrays a second."""
    import cupy
    x = cupy.ones(MIB, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    begun = time.perf_counter()
    for _ in range(rounds):
        x = cupy.sqrt(x * 2 + 1) - x / 3
    cupy.cuda.Device().synchronize()
    return rounds * 4 / (time.perf_counter() - begun)


def copies():
    """Through the pinned allocator: what went out comes back."""
    import cupy
    import numpy
    wrong = 0
    for size in (1, 1000, 1_000_000, 5_000_000):
        array = numpy.arange(size, dtype=numpy.int64)
        wrong += int((cupy.asnumpy(cupy.asarray(array)) != array).any())
    return wrong


def out_of_memory():
    import cupy
    try:
        cupy.empty(1 << 45, dtype=cupy.uint8)
    except cupy.cuda.memory.OutOfMemoryError as error:
        return str(error)
    return "nothing was raised"


def child(allocator, scale):
    held = set_up(allocator)
    import cupy
    cupy.ones(10).sum()
    result = {"digest": compute(300 * scale), "wrong copies": copies(),
              "small": pair_ns(cupy.cuda.alloc, 512, 20_000 * scale),
              "large": pair_ns(cupy.cuda.alloc, 4 * MIB, 20_000 * scale),
              "arrays": pipeline(2000 * scale), "held": held(), "error": out_of_memory(),
              "pinned": pair_ns(cupy.cuda.alloc_pinned_memory, 64 << 10, 20_000 * scale)}
    print(json.dumps(result))


def measure(folder, allocator, scale):
    """The results of a separate process, or why it failed."""
    options = [folder, "--scale", str(scale), "--child", allocator]
    done = subprocess.run([sys.executable, __file__, *options], text=True, capture_output=True,
                          timeout=200, check=False)
    if done.returncode != 0:
        return None, f"{allocator} ended with {done.returncode}: {done.stderr[-3000:]}"
    run = json.loads(done.stdout.splitlines()[-1])
    return run, f"{allocator}: copies" if run["wrong copies"] else ""


def row(allocator, found):
    """The median of each figure, and then the least of a process: some run at half the speed of others."""
    figures = {figure: sorted(run[figure] for run in found) for figure in ("small", "large", "arrays", "pinned", "held")}
    middle = {figure: statistics.median(values) for figure, values in figures.items()}
    pairs = {figure: f"{middle[figure]:.0f} ({figures[figure][0]:.0f})" for figure in ("small", "large", "pinned")}
    return (f"| {allocator} | {found[0]['digest']} | {pairs['small']} | {pairs['large']} | "
            f"{middle['arrays']:.0f} | {pairs['pinned']} | {middle['held'] / MIB:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--scale", type=int, default=2)
    parser.add_argument("--times", type=int, default=5, help="processes of each, in turns")
    parser.add_argument("--child", choices=ALLOCATORS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.scale)
        return 0
    if importlib.util.find_spec("cupy") is None:
        print("skipped: cupy is not installed")
        return 77
    failed, runs = [], {allocator: [] for allocator in ALLOCATORS}
    for _ in range(args.times):
        for allocator, found in runs.items():
            run, trouble = measure(args.folder, allocator, args.scale)
            found += [run] if run else []
            failed += [trouble] if trouble else []
    print("| allocator | computed | 512 B, ns a pair | 4 MiB, ns a pair | arrays/s | pinned 64 KiB, "
          "ns a pair | held MiB |\n|---|---|---|---|---|---|---|")
    for allocator, found in runs.items():
        print(row(allocator, found) if found else f"| {allocator} | failed | | | | | |")
    if len({run["digest"] for found in runs.values() for run in found}) > 1:
        failed.append("what is computed depends on the allocator")
    print("\nOut of memory:\n\n" + "\n".join(f"{name}: {found[0]['error']}" for name, found in runs.items() if found)
          + "\n")
    (args.folder / "cupy.json").write_text(json.dumps(runs, indent=1))
    print("\n".join(f"failed: {what}" for what in failed) or "CuPy: all good")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
