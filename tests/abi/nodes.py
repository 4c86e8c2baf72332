#!/usr/bin/env python3
"""nodes.py LIBRARY MAP PRESENT CC FROZEN...: the version of each symbol of libemm.so (MAP is lib/libemm.map).

PRESENT and FROZEN are folders of headers, these of interfaces 1.0, 1.1 and on. What one of them declares first is in its node,
where programs have found it; what came since is in the open node. So a program that uses something new is refused by an older
library.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

OLD = 'const char *emm_version(void) { return "an old one"; }\n'
OLD_MAP = "EMM_1 { global: emm_version; local: *; };\n"
PLAIN = "#include <emm/emm.h>\n#include <stdio.h>\nint main(void) { puts(emm_version()); return 0; }\n"
MODERN = ("#include <emm/emm.h>\nint main(void) { uint64_t total; return emm_get_device_total(0, &total) != EMM_OK; }\n")


def declared(folder):
    names = set()
    for header in pathlib.Path(folder).glob("*.h"):
        names |= set(re.findall(r"^EMM_API\s[^(;]*?(\w+)\(", header.read_text(encoding="utf-8"), re.M))
    return names


def node_of(minor):
    return f"EMM_1_{minor}" if minor else "EMM_1"


def open_node(text):
    """The node of the map that takes what is new."""
    return re.search(r"^(\w+) \{\n    global:\n        emm_\*;", text, re.M)[1]


def nodes(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r" T (\w+)@@(\w+)$", listing, re.M))


def expected(present, frozen):
    """The node of each declared function: that of the first interface which has it."""
    of = {}
    for minor, names in enumerate([*frozen, present]):
        of |= {name: node_of(minor) for name in names - of.keys()}
    return of


def faults(found, present, frozen):
    for name, node in sorted(expected(present, frozen).items()):
        if name.startswith(("emm_plugin_entry", "emm_layer_entry")):
            continue  # a plugin's or layer's own
        if found.get(name) != node:
            yield f"{name}: expected in {node}, where a program looks for it, found in {found.get(name, 'no node')}"


def compiled(cc, folder, name, text, *words):
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run([*cc, str(source), "-o", str(folder / name), *map(str, words)], check=True)
    return folder / name


def refused_by_an_old_library(library, include, cc, folder):
    """The dynamic linker's message to a program that uses a new function; an old library has only the first node."""
    (folder / "old.map").write_text(OLD_MAP)
    compiled(cc, folder, "libemm.so.1", OLD, "-shared", "-fPIC", "-Wl,-soname,libemm.so.1",
             f"-Wl,--version-script,{folder}/old.map")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    use = [f"-I{include}", library]
    plain = subprocess.run([compiled(cc, folder, "plain", PLAIN, *use)], env=environment, capture_output=True, text=True,
                           check=False)
    if plain.stdout != "an old one\n":
        yield f"a program of old functions: expected an old library to serve it, found {plain}"
    modern = subprocess.run([compiled(cc, folder, "modern", MODERN, *use)], env=environment, capture_output=True, text=True,
                            check=False)
    print(modern.stderr.strip())
    if modern.returncode == 0 or not re.search(r"libemm\.so\.1: version `EMM_1_\d' not found", modern.stderr):
        yield f"a program of new functions: expected an old library to be refused by its version, found {modern}"


def main(library, map_file, present, cc, *frozen):
    is_open = open_node(pathlib.Path(map_file).read_text(encoding="utf-8"))
    frozen = frozen[:[node_of(minor) for minor in range(len(frozen) + 1)].index(is_open)]  # but for a snapshot
    wrong = list(faults(nodes(library), declared(present), [declared(folder) for folder in frozen]))
    with tempfile.TemporaryDirectory() as folder:
        wrong += refused_by_an_old_library(library, pathlib.Path(present).parent, shlex.split(cc), pathlib.Path(folder))
    print("\n".join(wrong) or f"{library}: each symbol has the version in which it came")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
