"""CuPy's memory pool, measured as the C++ peers are: see peer.h for the commands.

CuPy is called from Python and cannot be called from anywhere else, so the loops are Python's.
Beside each cost stands `interpreter_ns`: what the same loop takes with a builtin that does next to
nothing in the pool's place.
"""
import ctypes
import json
import math
import random
import statistics
import sys
import time

import cupy

CHUNK = 1000  # pairs between looks at the clock
MIB = 1 << 20
SPIN = r"""extern "C" __global__ void spin(long long *out) {
    long long begin = clock64(), now = begin;
    while (now - begin < 1000000) now = clock64();
    *out = now;
}"""


def rounds_of(work, rounds, seconds):
    """The median, over the rounds, of the nanoseconds that one pair of work() takes."""
    work(CHUNK)
    figures = []
    for _ in range(rounds):
        chunks, began = [], time.perf_counter()
        while True:
            before = time.perf_counter()
            work(CHUNK)
            after = time.perf_counter()
            chunks.append((after - before) * 1e9 / CHUNK)
            if after - began >= seconds:
                break
        figures.append(statistics.median(chunks))
    return statistics.median(figures)


def spread(draw, low, high):
    begin = low << draw.randrange((high // low).bit_length())
    return draw.randint(begin, min(high, 2 * begin - 1))


def pairs(malloc, size):
    def work(count):
        for _ in range(count):
            malloc(size)
    return work


def replacing(malloc, live, low, high):
    draw = random.Random(1)
    sizes = [spread(draw, low, high) for _ in range(1 << 16)]
    order = [draw.randrange(live) for _ in range(1 << 16)]
    blocks = [malloc(sizes[i]) for i in range(live)]
    at = 0

    def work(count):
        nonlocal at
        for _ in range(count):
            i = order[at]
            blocks[i] = None
            blocks[i] = malloc(sizes[at])
            at = (at + 1) & 0xFFFF
    return work


def among_holes(malloc, size):
    draw = random.Random(1)
    blocks = [malloc(draw.randint(1, 16) * 512) for _ in range(2 * 65_536)]
    del blocks[1::2]

    def work(count, _keep=blocks):
        for _ in range(count):
            malloc(size)
    return work


def bench(case, threads, size, rounds, seconds):
    if threads > 1 or case == "cross":
        return {"absent": "interpreter lock"}
    makers = {"pair": lambda malloc: pairs(malloc, size),
              "holes": lambda malloc: among_holes(malloc, size),
              "mixed": lambda malloc: replacing(malloc, 10_000, 256, 4096),
              "large": lambda malloc: replacing(malloc, live_of_large(), MIB, 64 * MIB)}
    if case not in makers:
        return {"absent": "not measured"}
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.Stream(non_blocking=True):
        empty = rounds_of(makers[case](abs), rounds, seconds)
        ns = rounds_of(makers[case](pool.malloc), rounds, seconds)
    return {"ns_per_pair": ns, "mpairs_per_s": 1000 / ns, "interpreter_ns": empty}


def live_of_large():
    return max(1, min(4096, free_memory() // 3 * 2 // (16 * MIB)))


def free_memory():
    return cupy.cuda.runtime.memGetInfo()[0]


def random_events(count, largest):
    """The workload of random_allocations() in recording.cpp, from another generator."""
    draw, live, events, blocks, live_bytes = random.Random(1), [], [], 0, 0
    for _ in range(2 * count):
        size = draw.randint(1, largest)
        allocates = not live or (draw.randrange(100) < 73 and live_bytes + size < 16000 * MIB)
        if allocates and blocks < count:
            live.append((blocks, size))
            events.append(("+", 0, blocks, size))
            blocks, live_bytes = blocks + 1, live_bytes + size
        elif live:
            at = draw.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            block, size = live.pop()
            live_bytes -= size
            events.append(("-", 0, block, size))
    return events


def play(malloc, events):
    blocks = {}
    began = time.perf_counter()
    for op, _, block, size in events:
        if op == "+":
            blocks[block] = malloc(size)
        else:
            del blocks[block]
    return time.perf_counter() - began


def random_cost(count, largest):
    events = random_events(count, largest)
    pool = cupy.cuda.MemoryPool()
    seconds = [play(pool.malloc, events) for _ in range(4)][1:]
    empty = [play(abs, events) for _ in range(3)]
    scale = 1e9 / len(events)
    return {"ns_per_event": statistics.median(seconds) * scale,
            "interpreter_ns": statistics.median(empty) * scale}


def streams_cost(streams, kernels):
    kernel = cupy.RawKernel(SPIN, "spin")
    pool = cupy.cuda.MemoryPool()
    all_streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(streams)]
    seconds = []
    for _ in range(31):
        began = time.perf_counter()
        for i in range(kernels):
            with all_streams[i % streams]:
                block = pool.malloc(8)
                kernel((1,), (1,), (block.ptr,))
                del block
        cupy.cuda.runtime.deviceSynchronize()
        seconds.append(time.perf_counter() - began)
    return {"us_per_round": statistics.median(seconds) * 1e6}


def recording(lines):
    """Its events, and a stream for each that it names."""
    events = [(op, int(stream), int(block), int(size))
              for op, stream, block, size in map(str.split, lines)]
    return events, [cupy.cuda.Stream(non_blocking=True)
                    for _ in range(1 + max(event[1] for event in events))]


def replay(lines):
    events, streams = recording(lines)
    free_before, pool = free_memory(), cupy.cuda.MemoryPool()
    footprints = []

    def watch(live):
        footprints.append((live, max(0, free_before - free_memory())))

    first = walk(pool.malloc, streams, events, watch)
    second = walk(pool.malloc, streams, events)
    empty = walk(abs, streams, events)
    stretch = max(1, len(footprints) // 400)
    course = [tuple(map(max, zip(*footprints[i:i + stretch])))
              for i in range(0, len(footprints), stretch)]
    live, reserved = map(max, zip(*footprints))
    return {"peak_live_bytes": live, "peak_reserved_bytes": reserved,
            "ns_per_event": statistics.fmean(second), "p999_ns": nearest_rank(second, 0.999),
            "first_pass_ms": sum(first) / 1e6, "interpreter_ns": statistics.fmean(empty),
            "course": course}


def nearest_rank(values, share):
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def meter(lines):
    """The calls of the first pass to a metered driver."""
    read = getattr(ctypes.CDLL("libcuda.so.1"), "emmPeersDriverUse", None)
    if read is None:
        return {"absent": "-", "detail": "its driver cannot be metered"}
    events, streams = recording(lines)

    def use():
        calls, ns = ctypes.c_uint64(), ctypes.c_uint64()
        read(ctypes.byref(calls), ctypes.byref(ns))
        return calls.value, ns.value

    uses = [use()]  # before the first event, and after each
    walk(cupy.cuda.MemoryPool().malloc, streams, events, lambda _: uses.append(use()))
    begin, middle, end = uses[0], uses[len(events) // 2], uses[-1]
    return {"driver_ms": (end[1] - begin[1]) / 1e6, "driver_calls_first_half": middle[0] - begin[0],
            "driver_calls_second_half": end[0] - middle[0]}


def walk(malloc, streams, events, watch=None):
    """Nanoseconds spent in each call. A free finds its own way to the stream of its allocation."""
    blocks, live, spent, current = {}, 0, [], None
    for op, stream, block, size in events:
        if stream != current:
            streams[stream].use()
            current = stream
        before = time.perf_counter()
        if op == "+":
            blocks[block] = malloc(size)
        else:
            del blocks[block]
        spent.append((time.perf_counter() - before) * 1e9)
        live += size if op == "+" else -size
        if watch:
            watch(live)
    return spent


def measure(verb, arguments):
    if verb == "bench":
        case, threads, size, rounds, seconds = arguments
        return bench(case, int(threads), int(size), int(rounds), float(seconds))
    if verb == "random":
        return random_cost(int(arguments[0]), int(arguments[1]) * MIB)
    if verb == "streams":
        return streams_cost(int(arguments[0]), int(arguments[1]))
    return meter(sys.stdin) if verb == "meter" else replay(sys.stdin)


if __name__ == "__main__":
    try:
        print(json.dumps(measure(sys.argv[2], sys.argv[3:])))
    except Exception as error:  # any exception is this cell's answer
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        sys.exit(1)
