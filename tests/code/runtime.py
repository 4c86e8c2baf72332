#!/usr/bin/env python3
"""runtime.py LIBRARY... or --none: each needs the C library, the unwinder and libemm alone, and takes no part of a C++
library from the process: what emm run brings into a program must load beside any libstdc++.so.6, and without one."""
import re
import subprocess
import sys

# The C library of glibc, with its parts from before 2.34, and its dynamic linker.
C_LIBRARY = re.compile(r"lib(c|m|dl|pthread|rt)\.so\.\d+|ld-linux[-\w]*\.so\.\d+")
OWN = {"libemm.so.1"}
# The process's unwinder, which cancels threads for the C library; each one since GCC 4.5 has all needed functions.
UNWINDER = "libgcc_s.so.1"
LATEST_OF_UNWINDER = (4, 5, 0)
# C++ names, and names of the C++ ABI except those of the C library.
RUNTIME = re.compile(r"_Z|__gxx_|__cxa_(?!atexit$|at_quick_exit$|finalize$|thread_atexit_impl$)")
# References to transactional memory in libstdc++.a: weak, and only called within a transaction.
TRANSACTIONS = re.compile(r"_ZGTt")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed(dynamic):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)


def symbols(listing):
    """(type, name, version or "") of each line of nm."""
    return [(line.split()[-2], *re.fullmatch(r"([^@]*)@*(.*)", line.split()[-1]).groups())
            for line in listing.splitlines()]


def is_too_new(version):
    """Whether it is one of the unwinder's that an old one lacks."""
    numbers = re.fullmatch(r"GCC_([\d.]+)", version)
    return numbers is not None and tuple(map(int, numbers[1].split("."))) > LATEST_OF_UNWINDER


def faults(libraries, dynamic_symbols):
    for name in libraries:
        if not C_LIBRARY.fullmatch(name) and name != UNWINDER and name not in OWN:
            yield f"needs {name}"
    for kind, name, version in dynamic_symbols:
        if RUNTIME.match(name) and not TRANSACTIONS.match(name):
            yield f"{name}: is taken from the process" if kind in "Uw" else f"{name}: is exported"
        elif kind == "u":
            yield f"{name}: is one for the whole process (STB_GNU_UNIQUE)"
        elif is_too_new(version):
            yield f"{name}: an old {UNWINDER} has no {version}"


def main():
    if sys.argv[1:] == ["--none"]:
        print("skipped: the compiler has no C++ runtime to put inside")
        return 77
    found = []
    for library in sys.argv[1:]:
        listing = symbols(output("nm", "-D", library))
        found += [f"{library}: {fault}" for fault in
                  faults(needed(output("readelf", "--dynamic", "--wide", library)), listing)]
    print("\n".join(found) or f"{len(sys.argv) - 1} libraries have their C++ runtime inside")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
