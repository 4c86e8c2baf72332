"""cupy_spill.py GIB: CuPy with so many arrays of 1 GiB, each of which is used with its neighbour; what they come to."""
import sys

import cupy


def main():
    arrays = []
    for number in range(int(sys.argv[1])):
        arrays.append(cupy.arange(1 << 28, dtype=cupy.uint32))
        arrays[-1] *= number + 1
    for _ in range(3):
        for number, array in enumerate(arrays):
            array += arrays[number - 1]
    for number, array in enumerate(arrays):
        print(number, int(array.sum(dtype=cupy.uint64)), int(array[12345 * (number + 1)]))


if __name__ == "__main__":
    main()
