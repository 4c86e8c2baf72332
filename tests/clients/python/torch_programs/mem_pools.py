"""mem_pools.py: pools of PyTorch's are pools of emm's, by figures, bounds, snapshots and their end.

Under EMM_LIMIT=256MiB, which all pools share.
"""
import emm
import emm.torch
import torch

MIB = 1 << 20


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def in_pool(pool, size):
    with torch.cuda.use_mem_pool(pool):
        return tensor(size)


def stats_of(pool):
    return emm.stats(emm.torch.context_of(pool))


def refused(size, pool=None):
    try:
        in_pool(pool, size) if pool else tensor(size)
    except torch.OutOfMemoryError:
        return True
    return False


def check_figures():
    """Two pools have figures of their own, which PyTorch's sum up."""
    first, second = emm.torch.mem_pool(), emm.torch.mem_pool("kv-cache", "max=64MiB")
    before = torch.cuda.memory_reserved()
    one, two = in_pool(first, 24 * MIB), in_pool(second, 40 * MIB)
    named = emm.context_named(context, "kv-cache")
    assert emm.torch.context_of(second) == named and emm.torch.context_of(first) != named
    for device in (0, "cuda", "cuda:0", torch.device("cuda:0")):
        assert emm.torch.context_of(second, device) == named
    assert (stats_of(first).live_bytes, emm.stats(named).live_bytes) == (24 * MIB, 40 * MIB)
    assert stats_of(first).reserved_bytes >= 24 * MIB and emm.stats(named).reserved_bytes >= 40 * MIB
    assert torch.cuda.memory_reserved() - before == 64 * MIB, torch.cuda.memory_reserved() - before
    assert torch.cuda.max_memory_reserved() >= before + 64 * MIB
    assert refused(30 * MIB, second)  # its own limit
    address = two.data_ptr()
    del two
    assert in_pool(second, 40 * MIB).data_ptr() == address
    del one


def check_names():
    """A pool that the program names is no other pool's."""
    for number in range(1, 4):
        own, named = emm.torch.mem_pool(), emm.torch.mem_pool(f"torch-{number}")
        one, two = in_pool(own, MIB), in_pool(named, MIB)
        assert stats_of(own).live_bytes == stats_of(named).live_bytes == MIB
        del one, two
    try:
        emm.torch.mem_pool("torch#1")
        raise AssertionError("a pool was found that belongs to another one")
    except emm.Error as error:
        assert "a pool's name" in str(error), error


def check_snapshots():
    """Their bytes are those that are reserved, and a pool's are told of the pool."""
    pool = emm.torch.mem_pool()
    kept, gone, inside = tensor(8 * MIB), tensor(16 * MIB), in_pool(pool, 4 * MIB)
    del gone, inside
    segments = torch.cuda.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == torch.cuda.memory_reserved(), segments
    assert sum(segment["allocated_size"] for segment in segments) == torch.cuda.memory_allocated()
    cached = [segment for segment in segments if not segment["allocated_size"]]
    assert all(block["state"] == "inactive" for segment in cached for block in segment["blocks"])
    assert {tuple(segment["segment_pool_id"]) for segment in cached} >= {(0, 0), pool.id}, cached
    assert sum(segment["total_size"] for segment in pool.snapshot()) == stats_of(pool).reserved_bytes
    ranges = sorted((segment["address"], segment["address"] + segment["total_size"]) for segment in segments)
    assert all(before[1] <= behind[0] for before, behind in zip(ranges, ranges[1:])), ranges
    del kept


def check_nesting():
    """A pool within another one serves what is asked for in it; empty_cache leaves living pools alone."""
    first, second = emm.torch.mem_pool(), emm.torch.mem_pool()
    with torch.cuda.use_mem_pool(first):
        outer = tensor(4 * MIB)
        inner = in_pool(second, 8 * MIB)
    assert (stats_of(first).live_bytes, stats_of(second).live_bytes) == (4 * MIB, 8 * MIB)
    del inner, outer
    torch.cuda.empty_cache()
    assert [len(pool.snapshot()) for pool in (first, second)] == [1, 1]


def check_end():
    """A pool that ends gives back what it holds, and its pool of emm's serves the next one."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    pool = emm.torch.mem_pool()
    kept, gone, used = in_pool(pool, 4 * MIB), in_pool(pool, 32 * MIB), emm.torch.context_of(pool)
    del gone, pool
    assert emm.stats(used).live_bytes == 4 * MIB and kept.device.type == "cuda"
    del kept
    torch.cuda.empty_cache()
    assert emm.stats(used).reserved_bytes == 0 and torch.cuda.memory_reserved() == before
    for _ in range(40):
        pool = emm.torch.mem_pool()
        in_pool(pool, MIB)
        assert emm.torch.context_of(pool) == used
        del pool
        assert emm.stats(used).reserved_bytes == 0


def check_sharing():
    """Idle memory of one pool serves another one, and ordinary tensors, and the other way round."""
    first, second = emm.torch.mem_pool(), emm.torch.mem_pool()
    for size, where in ((200, first), (180, second), (220, None), (190, first)):
        made = in_pool(where, size * MIB) if where else tensor(size * MIB)
        assert torch.cuda.memory_reserved() <= 256 * MIB
        assert refused(100 * MIB) and refused(100 * MIB, second)
        del made
    # pytorch#159674: one pool, first with 60 % of the memory, then 70 %.
    in_pool(first, 150 * MIB)
    in_pool(first, 180 * MIB)


def check_use_on_oom():
    """A pool with an allocator of its own keeps what it has, unless it may be used on out of memory."""
    torch.cuda.empty_cache()
    emms = emm.torch.allocator().allocator()
    other, lender = torch.cuda.MemPool(emms), torch.cuda.MemPool(emms, use_on_oom=True)
    one, two = in_pool(other, 100 * MIB), in_pool(lender, 100 * MIB)
    assert refused(100 * MIB)
    address = two.data_ptr()
    del one, two
    borrowed = tensor(100 * MIB)
    assert borrowed.data_ptr() == address
    assert refused(100 * MIB)
    live, = [segment for segment in lender.snapshot() if segment["allocated_size"]]
    assert live["address"] == address
    del borrowed
    assert in_pool(lender, 100 * MIB).data_ptr() == address
    del other, lender
    tensor(250 * MIB)
    # pytorch#159674 with an allocator of its own.
    pool = torch.cuda.MemPool(emms)
    in_pool(pool, 150 * MIB)
    in_pool(pool, 180 * MIB)


def check_fraction():
    """A limit of PyTorch's counts whole segments, as PyTorch's own allocator does."""
    torch.cuda.empty_cache()
    emms = emm.torch.allocator().allocator()
    other, lender = torch.cuda.MemPool(emms), torch.cuda.MemPool(emms, use_on_oom=True)
    total = emm.memory_info(context)[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 80 * MIB) / total)
    one, two = in_pool(other, 40 * MIB), in_pool(lender, 40 * MIB)
    address = two.data_ptr()
    assert refused(40 * MIB)
    del one, two
    made = tensor(40 * MIB)
    assert made.data_ptr() == address
    assert refused(40 * MIB)
    torch.cuda.set_per_process_memory_fraction(1.0)


def check_bound_pool():
    """Where the plugin bounds each pool, a pool that lends has room of its own."""
    lender = torch.cuda.MemPool(use_on_oom=True)
    in_pool(lender, 60 * MIB)
    emm.set_option("", "max", "16MiB")
    made = tensor(50 * MIB)
    assert stats_of(lender).live_bytes == 50 * MIB and torch.cuda.memory_allocated() == 50 * MIB
    del made
    assert refused(70 * MIB)
    emm.set_option("", "max", None)


def check_disabled():
    """torch.cuda.caching_allocator_enable(False): straight from CUDA, counted by nothing."""
    counted = torch.cuda.memory_stats()["requested_bytes.all.allocated"]
    torch.cuda.caching_allocator_enable(False)
    raw = torch.cuda.caching_allocator_alloc(MIB)
    torch.cuda.caching_allocator_delete(raw)
    made = tensor(MIB)
    torch.cuda.caching_allocator_enable(True)
    assert torch.cuda.memory_stats()["requested_bytes.all.allocated"] == counted
    assert made.cpu().numel() == MIB
    del made
    assert torch.cuda.memory_allocated() == 0


def check_graphs():
    """Graphs that share a pool share its segments; their pool of emm's is told apart."""
    source, graphs, kept = tensor(1000), [], []

    def capture(pool=None):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=pool):
            kept.append(source.clone().clone())

    capture()
    capture()
    apart = torch.cuda.memory_reserved()
    assert stats_of(graphs[0].pool()).live_bytes == stats_of(graphs[1].pool()).live_bytes == 2 * MIB
    assert emm.torch.context_of(graphs[0].pool()) != emm.torch.context_of(graphs[1].pool())
    kept.clear()
    graphs.clear()
    torch.cuda.empty_cache()
    capture()
    capture(graphs[0].pool())
    assert apart - torch.cuda.memory_reserved() == 2 * MIB, (apart, torch.cuda.memory_reserved())
    ids = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    assert ids == {(0, 0), tuple(graphs[0].pool())}, ids


emm.torch.use()
context = emm.context_for_device(0)
for check in (check_figures, check_names, check_snapshots, check_nesting, check_end, check_sharing, check_use_on_oom, check_fraction,
              check_bound_pool, check_disabled, check_graphs):
    check()
    torch.cuda.empty_cache()
    print(f"good: {check.__doc__.splitlines()[0]}", flush=True)
