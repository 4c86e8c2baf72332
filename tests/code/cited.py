#!/usr/bin/env python3
"""cited.py ROOT [BUILD]: the tests that tests/README.md and lib/PROMISES.md name as proof are there, with the names that
they give, and each promise of the latter names one. BUILD has the names of Meson's tests; without it they are not looked up."""
import json
import os
import re
import sys

FILE = re.compile(r"`([\w/]+\.(?:cpp|c|py))`: ([^|`]*)")
NAMES = (re.compile(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"'), # Catch2
         re.compile(r'\{\s*"((?:[^"\\]|\\.)*)",\s*\w+\}'), # a table of tests in C
         re.compile(r"def test_(\w+)")) # Python
MESON = re.compile(r"`meson test`: ([^|`]*)")
NO_TEST = "no test"
ARRAYS = "### The CUDA Array Interface"


def tests_of(text):
    text = re.sub(r'"\s*\n\s*"', "", text)
    return {name.replace("_", " ") if name_of is NAMES[2] else name
            for name_of in NAMES for name in name_of.findall(text)}


def sentences(cell):
    """Tests are separated by semicolons; what follows a full stop is prose."""
    return [name for name in (part.strip() for part in cell.split(". ")[0].split(";")) if name]


def unproved(page):
    """The promises of a page that name no test: rows of tables whose last column is `test`, without a name or `no test`."""
    column = None
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            column = None
        elif column is None:
            column = cells[-1]
        elif column == "test" and not re.fullmatch("-+", cells[-1]) and not (
                FILE.search(cells[-1]) or MESON.search(cells[-1]) or cells[-1].startswith(NO_TEST)):
            yield f"no test is named, nor is it said that there is none: {cells[0]}"


def unknown(page, known):
    """`known`: the names of Meson's tests."""
    for line in page.splitlines():
        for cell in MESON.findall(line):
            for name in sentences(cell):
                if name not in known:
                    yield f"Meson has no test '{name}'"


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

    with open(os.path.join(sys.argv[1], "lib", "PROMISES.md"), encoding="utf-8") as file:
        promises = file.read()
    found = [*faults(read("README.md"), read), *faults(promises, read), *unproved(promises)]
    if len(sys.argv) > 2:
        with open(os.path.join(sys.argv[2], "meson-info", "intro-tests.json"), encoding="utf-8") as file:
            found += unknown(promises, {test["name"] for test in json.load(file)})
    print("\n".join(found) or "what tests/README.md and lib/PROMISES.md cite is there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
