#!/usr/bin/env python3
"""The exports of shared libraries.

    symbols.py list LIBRARY FILE [HEADER...]    exactly the symbols that the file names, one a line;
                                                they are the functions that the headers declare
    symbols.py only LIBRARY NAME                exactly one symbol, this
"""
import re
import subprocess
import sys


def exported(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True,
                             text=True, check=True).stdout
    # GNU ld lists each version node of a linker script as an absolute symbol (A), also a node without symbols.
    symbols = [line.split()[1:] for line in listing.splitlines()]
    return {name.split("@")[0] for kind, name in symbols if kind != "A"}


def declared(header):
    with open(header, encoding="utf-8") as file:
        return set(re.findall(r"^EMM_API\s[^(;]*?(\w+)\(", file.read(), re.M))


def difference(found, wanted, what="exported"):
    for name in sorted(found - wanted):
        yield f"{name}: is {what} and should not be"
    for name in sorted(wanted - found):
        yield f"{name}: should be {what} and is not"


def main():
    mode, library, argument, *headers = sys.argv[1:]
    if mode == "list":
        with open(argument, encoding="utf-8") as file:
            wanted = {line.strip() for line in file if line.strip()}
    else:
        wanted = {argument}
    found = list(difference(exported(library), wanted))
    if headers:
        names = set().union(*map(declared, headers))
        found += difference(names, wanted, "declared")
    print("\n".join(found) or f"{library} exports what it should: {len(wanted)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
