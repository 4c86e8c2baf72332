"""Programs that need nearly all of a device."""
import random

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


def queries(seed, live, threads=4):
    """Threads' tables: of some MiB, one in a hundred of half a GiB. The oldest go where there
    is no room."""
    chance, load = random.Random(seed), Load(threads, live)
    for _ in range(20000):
        thread = chance.randrange(threads)
        large = chance.random() < 0.01
        size = 560 * MiB if large else int(chance.lognormvariate(16, 1.5)) + 1
        while not load.has_room(size):
            load.free(max(range(threads), key=lambda each: len(load.blocks[each])), 0)
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
