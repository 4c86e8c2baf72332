#!/usr/bin/env python3
"""Programs that need nearly all of a device have every request met by the pool."""
import random
import unittest

from emm_program import Trace, run

MiB, GiB = 1 << 20, 1 << 30


class Load:
    """What a random program allocates and frees, on a stream for each thread."""

    def __init__(self, threads, most):
        self.rows = []
        self.blocks = [[] for _ in range(threads)]
        self.live = self.peak = 0
        self.most = most

    def event(self, thread, op, name, size):
        self.rows.append(f"{thread},{thread},{op},{name},{size}")
        self.live += size if op == "alloc" else -size
        self.peak = max(self.peak, self.live)

    def alloc(self, thread, size):
        self.blocks[thread].append((len(self.rows), size))
        self.event(thread, "alloc", *self.blocks[thread][-1])

    def free(self, thread, index):
        self.event(thread, "free", *self.blocks[thread].pop(index))

    def has_room(self, size):
        return self.live + size <= self.most

    def check(self, memory):
        with Trace(self.rows) as path:
            done = run("replay", path, "--plugin", "pool:growth=vmm",
                       EMM_SIM=f"memory={memory // (2 * MiB) * (2 * MiB)}")
        if done.returncode != 0:
            raise AssertionError(done.stderr)


def queries(seed, live):
    """Four threads' tables: of some MiB, one in a hundred of half a GiB. The oldest go where there
    is no room."""
    chance, load = random.Random(seed), Load(4, live)
    for _ in range(20000):
        thread = chance.randrange(4)
        large = chance.random() < 0.01
        size = 560 * MiB if large else int(chance.lognormvariate(16, 1.5)) + 1
        while not load.has_room(size):
            load.free(max(range(4), key=lambda each: len(load.blocks[each])), 0)
        load.alloc(thread, size)
        while load.blocks[thread] and chance.random() < 0.48:
            load.free(thread, chance.randrange(len(load.blocks[thread])))
    return load


def any_sizes(seed):
    """Blocks of up to 4 GiB, each size as likely, freed at random; 16 GiB at most."""
    chance, load = random.Random(seed), Load(1, 16 * GiB)
    for _ in range(1000):
        size = chance.randrange(1, 4 * GiB)
        while not load.has_room(size):
            load.free(0, chance.randrange(len(load.blocks[0])))
        load.alloc(0, size)
    return load


class Tight(unittest.TestCase):
    def test_every_request_is_met_where_up_to_95_percent_of_the_device_are_live(self):
        for seed, live in (1, 34), (1, 36), (1, 38), (2, 38):
            with self.subTest(seed=seed, live=live):
                queries(seed, live * GiB).check(40 * GiB)

    def test_large_requests_are_met_on_a_device_little_larger_than_the_peak(self):
        for seed in 1, 2, 3:
            with self.subTest(seed=seed):
                load = any_sizes(seed)
                load.check(int(load.peak * 1.0016))


if __name__ == "__main__":
    unittest.main(verbosity=2)
