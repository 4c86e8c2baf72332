"""pools_computing.py LIBRARY: CuPy computes in buffers that come from a library's own pool or mappings.

LIBRARY: rmm-async, cuda.core-pool or cuda.core-virtual. Buffers of the last are mapped once and used again: it unmaps what
work still uses, and keeps a handle of it. Prints a digest of all results, and how fast it was.
"""
import hashlib
import itertools
import random
import sys
import time

import cupy

WARM, ROUNDS, LIVE = 50, 4000, 16
MIB = 1 << 18  # numbers of 4 bytes


def maker(library):
    """A function that makes a buffer of that many bytes, and one that tells its address."""
    if library == "rmm-async":
        import rmm
        resource = rmm.mr.CudaAsyncMemoryResource()
        return lambda size: rmm.DeviceBuffer(size=size, mr=resource), lambda buffer: buffer.ptr
    from cuda.core import Device, DeviceMemoryResource, VirtualMemoryResource, VirtualMemoryResourceOptions
    device = Device(0)
    device.set_current()
    resource = DeviceMemoryResource(device) if library == "cuda.core-pool" else \
        VirtualMemoryResource(device, VirtualMemoryResourceOptions(handle_type=None))
    return (lambda size: resource.allocate(size, stream=device.default_stream)), lambda buffer: int(buffer.handle)


def main():
    make, address = maker(sys.argv[1])
    if sys.argv[1] == "cuda.core-virtual":
        buffers = itertools.cycle([make(256 * MIB * 4) for _ in range(LIVE + 2)])
        make = lambda size: next(buffers)
    chance, live, sums, begin = random.Random(1), [], [], 0.0
    for number in range(WARM + ROUNDS):
        if number == WARM:
            cupy.cuda.Device().synchronize()
            begin = time.perf_counter()
        count = chance.randrange(64 * MIB, 256 * MIB)
        buffer = make(count * 4)
        memory = cupy.cuda.UnownedMemory(address(buffer), count * 4, buffer)
        array = cupy.ndarray(count, cupy.float32, cupy.cuda.MemoryPointer(memory, 0))
        array[:] = number
        cupy.multiply(array, cupy.float32(0.5), out=array)
        live.append(array)
        if len(live) > LIVE:
            sums.append(live.pop(chance.randrange(len(live))).sum())
    cupy.cuda.Device().synchronize()
    print(f"figure rounds/s {ROUNDS / (time.perf_counter() - begin):.2f}")
    print("sums", hashlib.sha256(cupy.asnumpy(cupy.stack(sums)).tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
