#!/usr/bin/env python3
"""greenlets_program.py: greenlets that are switched in and out of the one C stack allocate on the driver API until the
device is full. Prints how many allocations each has made. Exits with 77 where greenlet is not installed."""
import ctypes
import sys

try:
    import greenlet
except ImportError:
    sys.exit(77)

cuda = ctypes.CDLL("libcuda.so.1")
COUNT, SIZE = 8, 16 << 20
made = [0] * COUNT


def allocate_at_depth(depth, number):
    if depth > 0:
        return allocate_at_depth(depth - 1, number)
    result = cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(SIZE))
    made[number] += result == 0
    return result


def work(number):
    """Through a callback from C, so that the frames of each differ."""
    results = []

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def call_back():
        greenlet.getcurrent().parent.switch()
        results.append(allocate_at_depth(number * 3, number))
        greenlet.getcurrent().parent.switch()
        results.append(allocate_at_depth(number, number))
        return 0

    while not any(results):
        call_back() if number % 2 else sorted([1], key=lambda _: call_back())


def start_from(depth, one, *arguments):
    return start_from(depth - 1, one, *arguments) if depth > 0 else one.switch(*arguments)


context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
everyone = [greenlet.greenlet(work) for _ in range(COUNT)]
for index, each in enumerate(everyone):
    start_from(index * 7, each, index)
while any(not each.dead for each in everyone):
    for each in everyone:
        if not each.dead:
            each.switch()
print(sum(made))
