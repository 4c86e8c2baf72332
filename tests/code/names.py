#!/usr/bin/env python3
"""names.py ROOT: a test of tests/unit is named after the source file it tests, or says which behaviour it tests. No
function is called by a word that only its author understands."""
import os
import posixpath
import re
import sys

from tree import files_of, text_of

UNIT = "tests/unit/"
CODE = (".h", ".hpp", ".c", ".cpp", ".py")
TESTS = re.compile(r"^\s*(TEST_CASE\b|TEMPLATE_TEST_CASE\b|SCENARIO\b|const test \w+\[\]|"
                   r"class \w+\(unittest\.TestCase\))", re.M)
PRIVATE = re.compile(r"\b((?:settle|conclude|lend|lent|stow|disown|let_go|look_after|upkeep|put_off|part_with|owe)"
                     r"(?:_\w+)?)\(")
BEHAVIOUR = re.compile(r"(//|/\*|#) Behaviour: \S")


def faults(sources, tests):
    """`sources`: paths of all files; `tests`: the text of each file below tests/unit, by path."""
    stems = {}
    for path in sources:
        if path.endswith(CODE) and not path.startswith("tests/"):
            folder, name = posixpath.split(path)
            stems.setdefault(folder, set()).add(name.split(".")[0])
    for path, text in sorted(tests.items()):
        if not path.endswith(CODE):
            continue
        folder, name = posixpath.split(path[len(UNIT):])
        stem = name.split(".")[0]
        if not TESTS.search(text):
            if stem.endswith("_test"):
                yield f"{path}: has no test, so its name does not end with _test"
            continue
        if not stem.endswith("_test"):
            yield f"{path}: has tests, so its name ends with _test"
            continue
        mirrored = [f for f in (folder, "lib/" + folder) if f in stems
                    or any(other.startswith(f + "/") for other in stems)]
        if not mirrored:
            yield f"{path}: there is neither {folder}/ nor lib/{folder}/ for it to test"
            continue
        source = posixpath.join(mirrored[0], stem[:-len("_test")])
        named = any(stem[:-len("_test")] in stems.get(f, ()) for f in mirrored)
        told = any(BEHAVIOUR.match(line) for line in text.split("\n")[:2])
        if named and told:
            yield f"{path}: says 'Behaviour:', but its name is that of {source}.*: rename it or drop the line"
        elif not named and not told:
            yield f"{path}: there is no {source}.* for it to test, and its first line has no 'Behaviour: '"


def private_names(path, text):
    """A fault for each function of a private name that a C or C++ file calls or declares."""
    for number, line in enumerate(text.split("\n"), 1):
        for name in PRIVATE.findall(line):
            yield f"{path}:{number}: {name}: call the function by what it does"


def main():
    root = sys.argv[1]
    files = files_of(root)
    tests = {path: text_of(os.path.join(root, path)) or "" for path in files
             if path.startswith(UNIT)}
    found = list(faults(files, tests))
    found += [fault for path in files if path.endswith(CODE)
              for fault in private_names(path, text_of(os.path.join(root, path)) or "")]
    print("\n".join(found) or f"the names of {len(tests)} files below {UNIT} say what they test")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
