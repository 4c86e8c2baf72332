#!/usr/bin/env python3
"""cited.py ROOT: the tests that tests/README.md names as proof are there, with the names that it gives."""
import os
import re
import sys

FILE = re.compile(r"`([\w/]+\.(?:cpp|c|py))`: ([^|`]*)")
NAMES = (re.compile(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"'), # Catch2
         re.compile(r'\{\s*"((?:[^"\\]|\\.)*)",\s*\w+\}'), # a table of tests in C
         re.compile(r"def test_(\w+)")) # Python
ARRAYS = "### The CUDA Array Interface"


def tests_of(text):
    text = re.sub(r'"\s*\n\s*"', "", text)
    return {name.replace("_", " ") if name_of is NAMES[2] else name
            for name_of in NAMES for name in name_of.findall(text)}


def sentences(cell):
    """Tests are separated by semicolons; what follows a full stop is prose."""
    return [name for name in (part.strip() for part in cell.split(". ")[0].split(";")) if name]


def faults(readme, read):
    """`read`: the text of a file by its path in tests/, None if there is none."""
    arrays = "\n".join(read(name) or "" for name in
                       ("unit/api/array_test.c", "unit/api/dlpack_test.c", "unit/api/exchange_test.c"))
    of_arrays = {"": tests_of(arrays), "P ": tests_of(read("process/array_test.py") or "")}
    is_array = False
    for line in readme.splitlines():
        is_array = line.startswith(ARRAYS) or (is_array and not line.startswith("#"))
        if not line.startswith("| "):
            continue
        for path, cell in FILE.findall(line):
            text = read(path)
            if text is None:
                yield f"{path}: is not there"
                continue
            for name in sentences(cell):
                if name not in tests_of(text):
                    yield f"{path}: has no test '{name}'"
        cells = line.strip("| ").split(" | ")
        if is_array and len(cells) == 2 and cells != ["rule", "test"]:
            for name in re.sub(r"does not apply[^;]*;?", "", cells[1]).split(";"):
                name = name.strip()
                kind = "P " if name.startswith("P ") else ""
                if name and name[len(kind):] not in of_arrays[kind]:
                    yield f"the tests of arrays: there is none '{name}'"


def main():
    folder = os.path.join(sys.argv[1], "tests")

    def read(name):
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()

    found = list(faults(read("README.md"), read))
    print("\n".join(found) or "what tests/README.md cites is there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
