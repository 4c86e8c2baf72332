#!/usr/bin/env python3
"""freeze.py MINOR [--open]: copies the headers of interface 1.MINOR to tests/abi/1.MINOR/emm, and ends its symbol node: each
function of the library is named there (lib/libemm.map), and the next node is open. With --open only the headers are copied: a
snapshot of an interface that may still grow.
"""
import pathlib
import re
import shutil
import sys

from nodes import declared, node_of, open_node

HEADERS = ("array.h", "emm.h", "plugin.h", "plugin.hpp", "plugin_helpers.h", "status.h")


def ended(text, minor, new):
    """The map with the functions in the node of this minor, behind which the next one is open."""
    node, following = node_of(minor), node_of(minor + 1)
    names = "".join(f"        {name};\n" for name in sorted(new))
    before = node_of(minor - 1)
    end = f"{node} {{\n    global:\n{names}}} {before};\n{following} {{\n    global:\n        emm_*;\n}} {node};\n"
    return text[:text.index(f"{node} {{")] + end


def main(minor, *flags):
    here = pathlib.Path(__file__).parent
    present, map_file = here.parents[1] / "include/emm", here.parents[1] / "lib/libemm.map"
    text = map_file.read_text(encoding="utf-8")
    if open_node(text) != node_of(int(minor)):
        sys.exit(f"interface 1.{minor} is not open: {open_node(text)} is")
    folder = here / f"1.{minor}/emm"
    folder.mkdir(parents=True, exist_ok=True)
    for name in HEADERS:
        shutil.copyfile(present / name, folder / name)
    if "--open" not in flags:
        named = set(re.findall(r"^        (emm_\w+);$", text, re.M))
        new = {name for name in declared(present) - named if not name.endswith("_entry_v1")}
        map_file.write_text(ended(text, int(minor), new), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
