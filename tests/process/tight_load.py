"""Programs that need nearly all of a device."""
import random

MiB, GiB = 1 << 20, 1 << 30


class Load:
    """The allocations and frees of a random program, on a stream for each thread."""

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


def lifetimes(seed, memory=8 * GiB, cuts=2000):
    """Blocks that fill `memory` to the byte at every moment, as the hardest of static planners' inputs do: a rectangle
    of memory and time, cut at random into smaller ones. Rows of a trace."""
    chance, parts = random.Random(seed), [(memory, 0, cuts * 8)]
    while len(parts) < cuts:
        size, begin, end = parts.pop(max(range(len(parts)), key=lambda each: parts[each][0] * (parts[each][2] - parts[each][1])
                                         * chance.random()))
        if chance.random() < 0.5 and end - begin > 1:
            middle = chance.randrange(begin + 1, end)
            parts += [(size, begin, middle), (size, middle, end)]
        else:
            lower = chance.randrange(1, size // 512) * 512 if size > 512 else size
            parts += [(lower, begin, end), (size - lower, begin, end)] if lower < size else [(size, begin, end)]
    events = sorted([(begin, 1, name, size) for name, (size, begin, _) in enumerate(parts)]
                    + [(end, 0, name, size) for name, (size, _, end) in enumerate(parts)])
    return [f"0,0,{'alloc' if is_alloc else 'free'},{name},{size}" for _, is_alloc, name, size in events]
