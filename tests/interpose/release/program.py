#!/usr/bin/env python3
"""program.py CASE LIBRARY: a program whose memory is in the caches of stand-ins for PyTorch and CuPy allocates on the
simulated driver of 1 GiB. Prints what came of it as one JSON object. LIBRARY is a build of library.c."""
import atexit
import ctypes
import json
import os
import sys
import threading
import time
import types

CACHED, WANTED = 768 << 20, 512 << 20  # either fits, but not both
cuda = ctypes.CDLL("libcuda.so.1")
cuda_with_lock = ctypes.PyDLL("libcuda.so.1")
library = ctypes.CDLL(sys.argv[2])
library_with_lock = ctypes.PyDLL(sys.argv[2])
context = ctypes.c_void_p()
asked = {"torch": 0, "cupy": 0, "cupy_pinned": 0}


def require(result):
    if result != 0:
        raise RuntimeError(f"CUresult {result}")


def allocate(call=cuda.cuMemAlloc_v2, size=WANTED):
    """The CUresult and the address."""
    address = ctypes.c_uint64()
    return call(ctypes.byref(address), ctypes.c_size_t(size)), address


def allocate_async(ret_address, size):
    return cuda.cuMemAllocAsync(ret_address, size, None)


def create_physical(ret_handle, size):
    properties = (ctypes.c_uint64 * 4)(1, 1)  # pinned, no handle type; on device 0
    return cuda.cuMemCreate(ret_handle, size, properties, ctypes.c_uint64(0))


def allocate_in(function):
    return lambda ret_address, size: function(cuda.cuMemAlloc_v2, ret_address, size)


def allocating_thread(results, *arguments):
    def run():
        require(cuda.cuCtxSetCurrent(context))
        results.append(allocate(*arguments)[0])
    return threading.Thread(target=run)


class Cache:
    """Device memory that only its owner can free."""

    def __init__(self, name, size=CACHED):
        self.name = name
        result, self.address = allocate(size=size)
        require(result)

    def give_back(self):
        asked[self.name] += 1
        require(cuda.cuMemFree_v2(self.address))
        self.address = 0


def import_torch(empty_cache):
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.cuda = sys.modules["torch.cuda"] = types.ModuleType("torch.cuda")
    torch.cuda.empty_cache = empty_cache


def import_cupy(free_device, free_pinned):
    cupy = sys.modules["cupy"] = types.ModuleType("cupy")
    for name, function in (("memory", free_device), ("pinned_memory", free_pinned)):
        pool = types.SimpleNamespace(free_all_blocks=function)
        setattr(cupy, f"get_default_{name}_pool", lambda pool=pool: pool)


def tell(result, **more):
    print(json.dumps({"result": result, **asked, **more}), flush=True)


# --- cases -----------------------------------------------------------------------------------------------------------

def with_torch(call=cuda.cuMemAlloc_v2):
    import_torch(Cache("torch").give_back)
    tell(allocate(call)[0])


def with_cupy():
    import_cupy(Cache("cupy").give_back, lambda: None)
    tell(allocate()[0])


def pinned():
    def count():
        asked["cupy_pinned"] += 1
    import_torch(Cache("torch").give_back)
    import_cupy(lambda: None, count)
    tell(allocate(lambda ret, size: cuda.cuMemHostAlloc(ret, ctypes.c_size_t(1 << 50), 0))[0])


def too_large():
    import_torch(Cache("torch").give_back)
    tell(allocate(size=2 << 30)[0])


def not_imported():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "modules"))
    cache = Cache("torch")
    result = allocate()[0]
    require(cuda.cuMemFree_v2(cache.address))
    tell(result, imported=[name for name in ("torch", "cupy") if name in sys.modules])


def half_imported():
    """Another thread is importing it: what it will have is not there yet."""
    cache = Cache("torch")
    import_torch(cache.give_back)
    del sys.modules["torch"].cuda.empty_cache
    sys.modules["cupy"] = None
    tell(allocate()[0])


def failing_cache():
    def fail():
        asked["torch"] += 1
        raise SystemExit("no cache")
    cache = Cache("cupy")
    import_torch(fail)
    import_cupy(cache.give_back, lambda: None)
    tell(allocate()[0])


def failing_in_cache():
    """The cache's own allocation fails too, and asks no cache."""
    cache, results = Cache("torch"), []

    def grow():
        results.append(allocate()[0])
        cache.give_back()
    import_torch(grow)
    tell(allocate()[0], within=results[0])


def in_a_capture():
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    require(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    import_torch(Cache("torch").give_back)
    require(cuda.cuStreamBeginCapture_v2(stream, 2))
    during = allocate()[0]
    count = asked["torch"]
    require(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
    tell(allocate()[0], during=during, asked_during=count)


def held_by_a_waiting_thread():
    """That thread holds the interpreter's lock until the allocation has ended."""
    import_torch(Cache("torch").give_back)
    holder = threading.Thread(target=library_with_lock.hold_until_allocated)
    results = []
    caller = allocating_thread(results, allocate_in(library.allocate_while_held))
    caller.start()
    library.wait_for_call()
    holder.start()
    caller.join()
    holder.join()
    count, end = asked["torch"], time.monotonic() + 60
    while allocate()[0] != 0 and time.monotonic() < end:  # once the late turn has ended, there is a new one
        time.sleep(0.01)
    tell(results[0], asked_late=count)


def several_threads():
    """Each lacks memory, and the cache has enough for all."""
    import_torch(Cache("torch", 1000 << 20).give_back)
    results = []
    threads = [allocating_thread(results, cuda.cuMemAlloc_v2, 64 << 20) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(max(results), threads=len(results))


def after_a_callback():
    """The program's own callback is asked first, and gives nothing back."""
    libemm = ctypes.CDLL("libemm.so.1")
    calls = []
    import_torch(Cache("torch").give_back)
    kind = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    callback = kind(lambda *_: calls.append(asked["torch"]) or 0)
    require(libemm.emm_set_pressure_callback(callback, None))
    tell(allocate()[0], asked_before=calls[0])


def from_library():
    """LIBRARY calls, and either cache is enough."""
    size = 300 << 20
    torch, cupy = Cache("torch", size), Cache("cupy", size)
    import_torch(torch.give_back)
    import_cupy(cupy.give_back, lambda: None)
    tell(allocate(allocate_in(library.allocate_here))[0])


class AtTheEnd:
    """Allocates when the interpreter lets go of its modules."""

    def __del__(self, allocate=allocate, write=os.write):
        write(1, b"%d at the end\n" % allocate()[0])


def ended():
    import_torch(Cache("torch").give_back)
    sys.modules["at_the_end"] = AtTheEnd()


def ending_after_a_turn():
    """The cache is full again when the interpreter's end begins; it is asked no more."""
    cache = Cache("torch")
    import_torch(cache.give_back)
    atexit.register(lambda: tell(allocate()[0]))  # before emm's own function, so it is called later
    result, address = allocate()
    require(result)
    require(cuda.cuMemFree_v2(address))
    cache.__init__("torch")


def ended_within_a_turn():
    """The caller has given up, and the program ends, while the cache still gives back."""
    cache, given_up = Cache("torch"), threading.Event()

    def give_back_late():
        given_up.wait()
        time.sleep(0.2)
        cache.give_back()
        os.write(1, b"given back\n")
    import_torch(give_back_late)
    tell(allocate()[0])
    given_up.set()


def asleep():
    """It has memory of cuMemCreate, and may be paused until its input ends."""
    import_torch(Cache("torch", 64 << 20).give_back)
    require(create_physical(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(WANTED)))
    print("ready", flush=True)
    sys.stdin.read()
    tell(0)


CASES = {
    "torch": with_torch,
    "torch-async": lambda: with_torch(allocate_async),
    "torch-physical": lambda: with_torch(create_physical),
    "torch-with-lock": lambda: with_torch(cuda_with_lock.cuMemAlloc_v2),
    "cupy": with_cupy,
}


def main():
    result = cuda.cuInit(0)
    if result != 0:
        tell(result)
        return
    require(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    require(cuda.cuCtxSetCurrent(context))
    case = sys.argv[1]
    (CASES.get(case) or globals()[case.replace("-", "_")])()


if __name__ == "__main__":
    main()
