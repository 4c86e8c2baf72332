"""pool_threads.py: threads make pools, give their tensors to each other and end pools, within EMM_LIMIT=128MiB."""
import random
import threading

import emm.torch
import torch

KIB = 1 << 10
THREADS, TURNS = 4, 60

emm.torch.use()
shared, refused, wrong = [], [], []
lock = threading.Lock()


def checked(value, size):
    """A tensor whose elements are all `value`, copied from the host."""
    return value, torch.full((size,), value, dtype=torch.uint8).to("cuda")


def take_from_others():
    with lock:
        return shared.pop(random.randrange(len(shared))) if len(shared) > 12 else None


def work(number):
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    rng, pool = random.Random(number), None
    for turn in range(TURNS):
        if turn % 8 == 0:
            pool = torch.cuda.MemPool(use_on_oom=turn % 16 == 0, no_split=turn % 24 == 0)
        with torch.cuda.stream(stream):
            try:
                ordinary = checked(7, rng.choice((100, 300 * KIB)))
                with torch.cuda.use_mem_pool(pool):
                    made = checked(turn, rng.choice((3, 700 * KIB, 9000 * KIB, 20000 * KIB)))
            except torch.OutOfMemoryError:  # the other threads hold the rest
                refused.append(turn)
                continue
            if turn % 5 == 0:
                made[1].record_stream(other)
            stream.synchronize()
        with lock:
            shared.append(made)
            shared.append(ordinary)
        while found := take_from_others():
            value, tensor = found
            if not torch.all(tensor.cpu() == value):
                wrong.append(value)
            del found, tensor
        if turn % 16 == 15:
            torch.cuda.empty_cache()
            torch.cuda.memory_snapshot()


threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
assert len(refused) < THREADS * TURNS // 2, len(refused)
shared.clear()
threads.clear()
torch.cuda.synchronize()
torch.cuda.empty_cache()
stats = torch.cuda.memory_stats()
assert stats["allocated_bytes.all.current"] == stats["segment.all.current"] == 0, stats
assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
