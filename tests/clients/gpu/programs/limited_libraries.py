"""limited_libraries.py GIB LIBRARY: takes blocks by a library's usual allocator until it says that there is no more.

LIBRARY: torch, torch-expandable, jax, cupy, rmm-async, cuda.core-pool or cuda.core-virtual. The device has GIB GiB by `emm run --limit`. What the library was given, what it
says when it gets no more, and what CUDA says is free then, must agree.
"""
import ctypes
import functools
import os
import sys

GIB = 1 << 30
BLOCK = GIB // 8


def torch_blocks():
    import torch

    def take():
        return torch.empty(BLOCK, dtype=torch.uint8, device="cuda")
    return take, torch.OutOfMemoryError


def jax_blocks():
    import jax

    def take():
        return jax.numpy.ones(BLOCK, dtype=jax.numpy.uint8).block_until_ready()
    return take, jax.errors.JaxRuntimeError


def cupy_blocks():
    import cupy

    def take():
        return cupy.empty(BLOCK, dtype=cupy.uint8)
    return take, cupy.cuda.memory.OutOfMemoryError


def rmm_blocks():
    import rmm
    resource = rmm.mr.CudaAsyncMemoryResource()

    def take():
        return rmm.DeviceBuffer(size=BLOCK, mr=resource)
    return take, MemoryError


def cuda_core_blocks(kind):
    from cuda.core import (Device, DeviceMemoryResource, DeviceMemoryResourceOptions, VirtualMemoryResource,
                           VirtualMemoryResourceOptions)
    from cuda.core._utils.cuda_utils import CUDAError
    device = Device(0)
    device.set_current()
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions()) if kind == "pool" else \
        VirtualMemoryResource(device, VirtualMemoryResourceOptions(handle_type=None))

    def take():
        return resource.allocate(BLOCK, stream=device.default_stream)
    return take, CUDAError


LIBRARIES = {"torch": torch_blocks, "torch-expandable": torch_blocks, "jax": jax_blocks, "cupy": cupy_blocks,
             "rmm-async": rmm_blocks, "cuda.core-pool": functools.partial(cuda_core_blocks, "pool"),
             "cuda.core-virtual": functools.partial(cuda_core_blocks, "virtual")}


def free_and_total():
    """As CUDA says in this process."""
    driver, free, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_size_t()
    if driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)):
        sys.exit("cuMemGetInfo failed")
    return free.value, total.value


def main():
    bound, library = int(sys.argv[1]) * GIB, sys.argv[2]
    if library == "torch-expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.95"  # JAX takes this share of the device when it starts
    take, no_more = LIBRARIES[library]()
    blocks = [take()]
    if (total := free_and_total()[1]) != bound:
        sys.exit(f"CUDA says that the device has {total} bytes, expected {bound}")
    try:
        while len(blocks) * BLOCK <= bound:
            blocks.append(take())
        sys.exit(f"{len(blocks) * BLOCK} bytes were given, the device has {bound}")
    except no_more as error:
        print(type(error).__name__)
        print("figure given-MiB", len(blocks) * BLOCK >> 20)
        print("figure free-MiB", free_and_total()[0] >> 20)
        print(str(error).splitlines()[0][:300], file=sys.stderr)
    if len(blocks) * BLOCK < bound * 9 // 10:
        sys.exit(f"{len(blocks) * BLOCK} of {bound} bytes were given")


if __name__ == "__main__":
    main()
