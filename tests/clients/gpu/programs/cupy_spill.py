"""cupy_spill.py GIB: CuPy with so many arrays of 1 GiB, each of which is used with its neighbour; what they come to."""
import sys
import time

import cupy


def fill(count):
    arrays = []
    for number in range(count):
        arrays.append(cupy.arange(1 << 28, dtype=cupy.uint32))
        arrays[-1] *= number + 1
    return arrays


def use(arrays):
    for number, array in enumerate(arrays):
        array += arrays[number - 1]


def timed(name, function, *arguments):
    begin = time.perf_counter()
    result = function(*arguments)
    cupy.cuda.Device().synchronize()
    print(f"figure {name}-s {time.perf_counter() - begin:.3f}")
    return result


def main():
    arrays = timed("fill", fill, int(sys.argv[1]))
    for number in range(3):
        timed(f"use-{number + 1}", use, arrays)
    for number, array in enumerate(arrays):
        print(number, int(array.sum(dtype=cupy.uint64)), int(array[12345 * (number + 1)]))


if __name__ == "__main__":
    main()
