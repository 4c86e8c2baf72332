#!/usr/bin/env python3
"""layers.py ROOT: the layers of lib/ and of plugins/pool use those below them only, and CUDA has its places.

    lib           api > monitor > sharing > core > loader > driver > dl > sockets > observe > fence
    plugins/pool  manager > backing > cache > order > cuda > policy > heap

Only order/ of the pool calls entries about streams, events and graphs.
The files beside the pool's folders are its manager layer. Includes of our own are written from lib/ or
from plugins/pool ("loader/spec.h", "heap/block.h"), or from the file's folder ("spec.h").
"""
import os
import re
import sys

LAYERS = ["fence", "observe", "sockets", "dl", "driver", "loader", "core", "sharing", "monitor", "api"]
POOL = "plugins/pool"
WORK_CALL = re.compile(r"\b(cu(?:Event|Stream|UserObject|Graph)\w*)\s*\(")
POOL_LAYERS = ["heap", "policy", "cuda", "order", "cache", "backing", "manager"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
FOR_CUDA_PROGRAMS = "include/emm/cuda.h"  # the others need no cuda.h
CUDA_HEADER = re.compile(r"^cuda\w*\.h$")
DLOPEN = re.compile(r"\b(dlopen|dlmopen|dlsym)\s*\(")


def sources(folder):
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".h", ".hpp", ".c", ".cpp")):
                yield os.path.join(path, name)


def layer_of(path, lib):
    first = os.path.relpath(path, lib).split(os.sep)[0]
    return first if first in LAYERS else None


def pool_layer_of(path, pool):
    parts = os.path.relpath(path, pool).split(os.sep)
    if parts[0] == os.pardir:
        return None
    return "manager" if len(parts) == 1 else parts[0]


def target_layer(including, name, base, layer):
    """The layer of a quoted include, or None if it is not one of this tree's."""
    for folder in (os.path.dirname(including), base):
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(path):
            return layer(path, base)
    return None


def faults(root):
    lib = os.path.join(root, "lib")
    for path in sources(lib):
        where = os.path.relpath(path, root)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        layer = layer_of(path, lib)
        if layer is None:
            yield f"{where}: belongs to no layer ({', '.join(reversed(LAYERS))})"
            continue
        for bracket, name in INCLUDE.findall(text):
            if CUDA_HEADER.match(name) and layer != "driver":
                yield f"{where}: includes {name}, which only lib/driver may"
            other = target_layer(path, name, lib, layer_of) if bracket == '"' else None
            if other and LAYERS.index(other) > LAYERS.index(layer):
                yield f"{where}: {layer} includes {name} of the layer above it, {other}"
        if layer not in ("dl", "driver", "loader") and DLOPEN.search(text):
            yield f"{where}: opens libraries, which only lib/dl, lib/driver and lib/loader may"
    for path in sources(os.path.join(root, "include")):
        with open(path, encoding="utf-8") as file:
            for _, name in INCLUDE.findall(file.read()):
                if CUDA_HEADER.match(name) and os.path.relpath(path, root) != FOR_CUDA_PROGRAMS:
                    yield f"{os.path.relpath(path, root)}: a public header includes {name}"


def pool_faults(root):
    pool = os.path.join(root, POOL)
    for path in sources(pool):
        where = os.path.relpath(path, root)
        layer = pool_layer_of(path, pool)
        if layer not in POOL_LAYERS:
            yield f"{where}: belongs to no layer ({', '.join(reversed(POOL_LAYERS))})"
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for name in sorted(set(WORK_CALL.findall(text))) if layer != "order" else ():
            yield f"{where}: calls {name}, which only order/ may"
        for bracket, name in INCLUDE.findall(text):
            if layer == "heap" and CUDA_HEADER.match(os.path.basename(name)):
                yield f"{where}: includes {name}, but heap/ knows no driver"
            other = target_layer(path, name, pool, pool_layer_of) if bracket == '"' else None
            if other in POOL_LAYERS and POOL_LAYERS.index(other) > POOL_LAYERS.index(layer):
                yield f"{where}: {layer} includes {name} of the layer above it, {other}"


def main():
    found = list(faults(sys.argv[1])) + list(pool_faults(sys.argv[1]))
    print("\n".join(found) or "every include goes downwards")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
