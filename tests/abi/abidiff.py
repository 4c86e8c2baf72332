#!/usr/bin/env python3
"""abidiff.py check|write BASELINE LIBRARY HEADERS: a library still has the functions and types that
were written down when its ABI was frozen; what was added since is no matter.
"""
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77
CHANGED = 4 | 8  # abidiff's bits for a change, and for one that breaks programs


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def has_types(library):
    sections = subprocess.run(["readelf", "-S", library], capture_output=True, text=True,
                              check=False).stdout
    return ".debug_info" in sections


def main():
    mode, baseline, library, headers = sys.argv[1:]
    if not shutil.which("abidiff") or not shutil.which("abidw"):
        skip("abigail-tools are not installed")
    if not has_types(library):
        skip(f"{library} was built without debug information")
    if mode == "write":
        written = subprocess.run(
            ["abidw", "--headers-dir", headers, "--drop-private-types", "--exported-interfaces-only",
             "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", library],
            capture_output=True, text=True, check=True).stdout
        pathlib.Path(baseline).write_text(written, encoding="utf-8")
        return 0
    suppressions = pathlib.Path(__file__).with_name("growth.suppr")
    result = subprocess.run(
        ["abidiff", "--headers-dir2", headers, "--drop-private-types", "--no-added-syms",
         "--suppressions", suppressions, baseline, library],
        capture_output=True, text=True, check=False)
    print(result.stdout, result.stderr)
    return 1 if result.returncode & (CHANGED | 1) else 0


if __name__ == "__main__":
    sys.exit(main())
