#!/usr/bin/env python3
"""package_versions.py SYMBOLS MAP...: each version of functions that a version script has stands in Debian's SYMBOLS.

dpkg takes a version that does not for one of the package's revision, which lintian refuses.
"""
import pathlib
import re
import sys


def missing(symbols, scripts):
    """The versions of the scripts that the file does not name."""
    named = set(re.findall(r"^ \(symver\)(\w+) ", symbols, re.M))
    return sorted({node for script in scripts for node in re.findall(r"^(\w+) \{", script, re.M)} - named)


def main(symbols, *scripts):
    found = missing(pathlib.Path(symbols).read_text(), [pathlib.Path(script).read_text() for script in scripts])
    for node in found:
        print(f"{symbols}: expected a line ' (symver){node} VERSION', found none")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
