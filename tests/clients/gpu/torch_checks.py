#!/usr/bin/env python3
"""torch_checks.py ALLOCATOR: what PyTorch relies on, one line each; exits 1 if something is wrong.

ALLOCATOR is native, a plugin of emm's, mem_pool, or pluggable: the pool by CUDAPluggableAllocator.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import torch

ALLOCATOR = sys.argv[1]
EMM = pathlib.Path(os.environ.get("EMM_LIBRARY", "build-gpu/lib/libemm.so.1")).parents[1] / "tools/emm/emm"
PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "python/torch_programs"
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
        torch.ones(4 * MIB, device="cuda")  # memory that is given out again is not new
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


def small_model():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    return model.to("cuda"), torch.randn(64, 256).to("cuda")


def trained(pool=None):
    """The gradients of a small model after ten steps, whose memory comes from `pool`."""
    with torch.cuda.use_mem_pool(pool) if pool else contextlib.nullcontext():
        model, inputs = small_model()
        for step in range(10):
            model(inputs + step).square().mean().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).cpu()


def replayed(pool=None):
    """The results of a graph of the model, captured in `pool`, while others allocate."""
    model, inputs = small_model()
    outputs, graph = [], torch.cuda.CUDAGraph()
    with torch.no_grad():
        model(inputs)
        with torch.cuda.graph(graph, pool=pool.id if pool else None):
            result = model(inputs)
        for _ in range(10):
            others = [torch.full((64, 512), 9.0, device="cuda") for _ in range(20)]
            inputs.add_(0.125)
            graph.replay()
            outputs.append(result.cpu())
            del others
        return torch.stack(outputs), torch.equal(outputs[-1], model(inputs).cpu())


def check_mem_pools():
    """torch.cuda.MemPool, a pool of emm's; mem_pools.py has what needs no kernel."""
    import emm
    import emm.torch
    pool, other = emm.torch.mem_pool(), emm.torch.mem_pool("checked", "max=1GiB")
    report("a model in a pool computes the same to the bit", torch.equal(trained(), trained(pool)))
    (private, same), (shared, also) = replayed(), replayed(emm.torch.mem_pool())
    report("graphs in pools of their own and in a MemPool replay the same to the bit",
           same and also and torch.equal(private, shared))
    with torch.cuda.use_mem_pool(other):
        report("memory of a pool that was recorded for another stream is not given out too early",
               not overwritten(record=True))
        x = torch.ones(4 * MIB, device="cuda")
    first, second = (emm.stats(emm.torch.context_of(each)) for each in (pool, other))
    report("two pools have figures of their own", 0 < first.reserved_bytes < second.reserved_bytes,
           f"{first.reserved_bytes} and {second.reserved_bytes} bytes")
    named = emm.context_named(emm.context_for_device(0), "checked")
    report("a pool is found by its name", emm.stats(named).reserved_bytes == second.reserved_bytes)
    del x
    used = emm.torch.context_of(pool)
    del pool, other
    torch.cuda.empty_cache()
    left = emm.stats(used).reserved_bytes + emm.stats(named).reserved_bytes
    report("pools that have ended hold nothing", left == 0, f"{left} bytes")


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


def check_out_of_memory_class():
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        report("out of memory has PyTorch's class and emm's words", "bytes free" in str(error))
    except RuntimeError as error:
        report("out of memory has PyTorch's class and emm's words", False, type(error).__name__)
    report("out of memory is counted", torch.cuda.memory_stats()["num_ooms"] > 0)


def check_figures():
    """Allocation, peak and reserve, around work that runs kernels."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = torch.ones(4 * MIB, device="cuda")
    y = x * 2 + 1
    report("what is allocated is counted", torch.cuda.memory_allocated() == before + 32 * MIB,
           f"{torch.cuda.memory_allocated() - before} bytes")
    del x, y
    report("what is freed is not", torch.cuda.memory_allocated() == before)
    peak = torch.cuda.max_memory_allocated() - before
    report("the peak holds the temporary tensor too", 48 * MIB <= peak <= 49 * MIB, f"{peak} bytes")
    report("what is reserved is at least that",
           torch.cuda.max_memory_reserved() >= torch.cuda.max_memory_allocated())
    report("a summary can be printed", "Allocated memory" in torch.cuda.memory_summary())


def check_history():
    torch.cuda.memory._record_memory_history(max_entries=1000)
    kept = (torch.ones(MIB, device="cuda") * 3).contiguous()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    report("history tells allocations and frees",
           actions.count("alloc") >= 2 and "free_completed" in actions, " ".join(actions))
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    names = {frame["name"] for block in blocks if block["address"] == kept.data_ptr() for frame in block["frames"]}
    report("a snapshot tells who allocated", "check_history" in names)


def check_report():
    """A snapshot with the stacks of C++ and Python, as it is by default, on the page of `emm report`."""
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    kept = model(torch.ones(1024, 1024, device="cuda"))
    kept.sum().backward()
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        snapshot = pathlib.Path(folder, "snapshot.pickle")
        torch.cuda.memory._dump_snapshot(str(snapshot))
        torch.cuda.memory._record_memory_history(enabled=None)
        done = subprocess.run([EMM, "report", snapshot, "--json", "-o", pathlib.Path(folder, "page.html")],
                              capture_output=True, text=True, timeout=120, check=False)
    report("a snapshot becomes a page", done.returncode == 0, done.stderr[-500:])
    names = [group["name"] for group in json.loads(done.stdout)["memory"][0]["at_peak"]["caller"]] if done.stdout else []
    report("its callers are lines of the program and nodes of autograd's graph",
           any("(check_report)" in name for name in names) and any("Backward" in name for name in names)
           and not any("unwind" in name or "CachingAllocator" in name for name in names), ", ".join(names))


def check_peaks():
    import emm
    context, size = emm.context_for_device(0), 64 * MIB
    torch.empty(size, dtype=torch.uint8, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    report("PyTorch's reset of the peaks is emm's too",
           emm.stats(context).peak_live_bytes == emm.stats(context).live_bytes, repr(emm.stats(context)))


def check_compiled():
    """torch.compile(mode="reduce-overhead"), whose graphs share and rewind a pool."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(),
                                torch.nn.Linear(512, 256)).to("cuda")
    compiled, plain = torch.compile(model, mode="reduce-overhead"), torch.compile(model)
    wrong = differ = 0
    with torch.no_grad():
        for step in range(40):
            torch.compiler.cudagraph_mark_step_begin()
            inputs = torch.randn((8, 64, 33)[step % 3], 256, device="cuda")
            result = compiled(inputs)
            others = [torch.full((256, 256), 9.0, device="cuda") for _ in range(10)]
            wrong += not torch.allclose(result, model(inputs), atol=1e-4)
            differ += not torch.equal(result, plain(inputs))
            wrong += sum((other != 9).any().item() for other in others)
    report("graphs of torch.compile compute what the model does", wrong == 0, f"{wrong} wrong")
    report("to the bit what its code without graphs does", differ == 0, f"{differ} differ")
    skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    report("graphs were captured for it", skipped == 0, f"{skipped} skipped")


def check_programs():
    """The checks that also run on the simulated driver, with two processes that share tensors among them."""
    for name in ("figures", "late", "history", "streams", "graphs", "trees", "pools", "sharing", "mem_pools"):
        limits = {"EMM_LIMIT": "256MiB"} if name == "mem_pools" else {}
        if limits and ALLOCATOR == "passthrough":  # keeps no memory that a pool could give
            continue
        done = subprocess.run([sys.executable, PROGRAMS / f"{name}.py"], text=True, timeout=120,
                              capture_output=True, env={**os.environ, **limits}, check=False)
        report(f"torch_programs/{name}.py", done.returncode == 0, done.stderr[-500:])


def check_backend():
    """Features of PyTorch that need its own allocator and fail with a pluggable one."""
    if torch.cuda.get_allocator_backend() != "emm":
        report("emm is PyTorch's own kind of allocator", False, torch.cuda.get_allocator_backend())
        return
    check_figures()
    check_history()
    check_report()
    check_peaks()
    check_out_of_memory_class()
    check_compiled()
    if ALLOCATOR != "passthrough":
        check_mem_pools()
    check_programs()


def use_emm():
    """Late, after a tensor of PyTorch's own allocator; the pluggable one must come first."""
    os.environ["EMM_PLUGIN"] = "pool" if ALLOCATOR == "pluggable" else ALLOCATOR
    import emm.torch
    if ALLOCATOR == "pluggable":
        emm.torch.use(pluggable=True)
        return
    torch.cuda.set_device(0)
    before = torch.full((MIB,), 5.0, device="cuda")
    emm.torch.use()
    total = (before + torch.ones(MIB, device="cuda")).sum().item()
    report("a tensor from before emm can be used", total == 6 * MIB)


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


def live_bytes():
    """In all pools of emm's: each pool of PyTorch's is one."""
    import emm
    found = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def visit(context, _):
        found.append(emm.stats(context).live_bytes)
        return 0

    torch.cuda.synchronize()
    emm.check(emm.lib.emm_foreach_context(ctypes.cast(visit, ctypes.c_void_p), None))
    return sum(found)


def check_graph():
    """The memory of a capture stays its graph's while others allocate, and ends with the graph."""
    x = torch.ones(MIB, device="cuda")
    (x * 2).sum()
    before = live_bytes()
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
    report("nothing of a graph stays live", live_bytes() <= before, f"{live_bytes() - before} bytes more than before")


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
            use_emm()
        check_record_stream()
        check_threads()
        if ALLOCATOR != "native":
            check_out_of_memory()
            check_graph()
            if ALLOCATOR != "pluggable":
                check_backend()
            torch.cuda.empty_cache()
    global kept  # by the module, until the interpreter is gone
    kept = [torch.ones(1000, device="cuda") for _ in range(100)]
    kept.append(kept)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
