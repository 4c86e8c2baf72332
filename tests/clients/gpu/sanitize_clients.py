#!/usr/bin/env python3
"""compute-sanitizer over CuPy and PyTorch on emm, with the layer sanitize and without. Needs a GPU.

    sanitize_clients.py FOLDER [--only cupy,torch]

A kernel writes inside an array, one element past it, and to it after its free; and a program puts
much work on several streams and frees at once what it used. With the layer memcheck must name the
writes past the end and after the free where the plugin's memory is of cuMemAlloc, the only one that
it takes; else none of them.
"""
import argparse
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

PLUGINS = {"pool": False, "pool:growth=segment": True}  # whether memcheck looks inside their memory
CLIENTS = ["cupy", "torch"]
WRITES = {"inside": False, "past": True, "freed": True, "busy": False}  # whether the layer shows an error
ELEMENTS = 1000


def allocator(client):
    """A function that makes an array of a client's on emm, and one that tells its address."""
    if client == "cupy":
        import cupy
        import emm.cupy
        emm.cupy.use()
        return lambda: cupy.zeros(ELEMENTS, cupy.float32), lambda array: array.data.ptr
    import emm.torch
    emm.torch.use()
    import torch
    return lambda: torch.zeros(ELEMENTS, device="cuda"), lambda array: array.data_ptr()


def child(client, write):
    make, address = allocator(client)
    import cupy
    put = cupy.RawKernel('extern "C" __global__ void put(float *x, long long at) { x[at] = 1; }', "put")
    arrays = [make() for _ in range(3)]  # neighbours on both sides
    ptr = address(arrays[1])
    if write == "busy":
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
        for turn in range(400):
            with streams[turn % 4]:
                array = cupy.ones(100_000 + turn * 997, cupy.float32) * turn
                array += array.sum()
                del array
    elif write == "freed":
        cupy.cuda.Device().synchronize()
        del arrays[1]
        put((1,), (1,), (ptr, 0))
    else:
        put((1,), (1,), (ptr, ELEMENTS - (write == "inside")))
    cupy.cuda.Device().synchronize()


def errors(said):
    """How many errors memcheck has told; None if it did not come to its end."""
    summary = re.search(r"ERROR SUMMARY: (\d+) error", said)
    return int(summary.group(1)) if summary else None


def verdict(found, said, wanted):
    if found is None:
        return "FAILED: no summary"
    if bool(found) != wanted:
        return f"FAILED: {found} errors"
    return "FAILED: another error" if wanted and "Invalid __global__ write" not in said else "good"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(CLIENTS))
    parser.add_argument("--child", nargs=2, metavar=("CLIENT", "WRITE"))
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return 0
    program = shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    clients = [client for client in CLIENTS if importlib.util.find_spec(client)]
    if not program or "cupy" not in clients:  # the kernel is CuPy's, on the memory of each
        print("skipped: compute-sanitizer or cupy is not installed")
        return 77
    failed = 0
    print("| client | EMM_PLUGIN | write | errors | |\n|---|---|---|---|---|")
    for client in [client for client in clients if client in args.only.split(",")]:
        for spec, looks in [(layer + plugin, layer and looks) for plugin, looks in PLUGINS.items() for layer in ("", "sanitize+")]:
            for write, shows in WRITES.items():
                done = subprocess.run([program, "--tool", "memcheck", sys.executable, __file__, args.folder,
                                       "--child", client, write], env={**os.environ, "EMM_PLUGIN": spec},
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                log = args.folder / f"sanitize-{client}-{re.sub('[^a-z]', '-', spec)}-{write}.log"
                log.write_text(done.stdout)
                found = errors(done.stdout)
                told = verdict(found, done.stdout, bool(shows and looks))
                failed += told != "good"
                print(f"| {client} | {spec} | {write} | {found} | {told} |", flush=True)
    print("sanitize: all good" if not failed else f"failed: {failed} rows; the logs are in {args.folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
