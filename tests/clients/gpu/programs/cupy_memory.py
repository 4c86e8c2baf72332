"""cupy_memory.py: CuPy with its own pool, with none, with the driver's pool; pinned and managed memory."""
import cupy
import numpy


def work(name):
    total = 0.0
    for size in (1, 1000, 1 << 16, 1 << 20):
        for _ in range(20):
            data = cupy.arange(size, dtype=cupy.float64)
            total += float((data * 2 + 1).sum())
    print(name, total)


def main():
    work("its pool")
    cupy.get_default_memory_pool().free_all_blocks()
    with cupy.cuda.using_allocator(None):
        work("no pool")
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        work("cudaMallocAsync")
    with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
        work("managed")
    pinned = cupy.cuda.alloc_pinned_memory(1 << 20)
    host = numpy.frombuffer(pinned, numpy.float64, 1 << 17)
    host[...] = 3
    print("pinned", float(cupy.asarray(host).sum()))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        print("a stream", float(cupy.ones(1 << 20).sum()))
    try:
        cupy.empty(1 << 50, dtype=cupy.uint8)
    except cupy.cuda.memory.OutOfMemoryError:
        print("too much: OutOfMemoryError")


if __name__ == "__main__":
    main()
