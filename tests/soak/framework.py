#!/usr/bin/env python3
"""framework.py torch|cupy SECONDS: threads that come and go allocate and compute on streams of their own, and the caches are emptied.

The sizes repeat after SEEDS threads. With ever new sizes, the largest need so far would grow slowly for ever.
"""
import importlib
import random
import sys
import threading
import time

THREADS, ARRAYS, MOST_ELEMENTS, SEEDS = 4, 60, 1 << 22, 32


def torch_work(torch, chance):
    with torch.cuda.stream(torch.cuda.Stream()):
        kept = []
        for _ in range(ARRAYS):
            array = torch.full((chance.randrange(1, MOST_ELEMENTS),), 1.0, device="cuda")
            kept = [*kept[-8:], array * 2]
        assert all(float(array[-1]) == 2 for array in kept)


def cupy_work(cupy, chance):
    with cupy.cuda.Stream():
        kept = []
        for _ in range(ARRAYS):
            array = cupy.ones(chance.randrange(1, MOST_ELEMENTS), dtype=cupy.float32)
            kept = [*kept[-8:], array * 2]
        assert all(float(array[-1]) == 2 for array in kept)


def empty(name, module):
    if name == "torch":
        module.cuda.synchronize()
        module.cuda.empty_cache()
    else:
        module.cuda.Device().synchronize()
        module.get_default_memory_pool().free_all_blocks()


def main():
    name, seconds = sys.argv[1], float(sys.argv[2])
    module, work = importlib.import_module(name), {"torch": torch_work, "cupy": cupy_work}[name]
    failures = []

    def run(seed):
        try:
            work(module, random.Random(seed))
        except Exception as error: # told by the exit status
            failures.append(error)

    end, seed = time.monotonic() + seconds, 0
    while time.monotonic() < end and not failures:
        threads = [threading.Thread(target=run, args=(seed + number,)) for number in range(THREADS)]
        seed = (seed + THREADS) % SEEDS
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        empty(name, module)
    sys.exit(str(failures[0]) if failures else 0)


if __name__ == "__main__":
    main()
