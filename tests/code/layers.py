#!/usr/bin/env python3
"""layers.py ROOT: the layers of lib/ and of plugins/pool use those below them only, and CUDA has its places.

    lib           api > sharing, monitor > core > loader > driver > dl > sockets > observe > fence
    lib/core      lifecycle > handles, arrays, reports > memory > tracking > record
    lib/sharing   the files beside its folders > exporter, importer > handle
    plugins/pool  manager > backing > cache > order > cuda > policy > heap

Two that stand at one height use each other as little as those above. No two units (a header and its source) of lib/
include each other, however many others are between them; and no file of a layer declares what belongs to one above:
it opens no namespace of that name. What goes upwards at run time is a hook, which the layer above sets.

Only order/ of the pool calls entries about streams, events and graphs.
The files beside the pool's folders are its manager layer. Includes of our own are written from lib/ or
from plugins/pool ("loader/spec.h", "heap/block.h"), or from the file's folder ("spec.h").
"""
import os
import re
import sys

# The lowest first. A layer of lib/ is a folder, and so is a room of a layer.
LAYERS = [["fence"], ["observe"], ["sockets"], ["dl"], ["driver"], ["loader"], ["core"], ["sharing", "monitor"], ["api"]]
BESIDE = "the files beside its folders"
ROOMS = {"core": [["record"], ["tracking"], ["memory"], ["handles", "arrays", "reports"], ["lifecycle"]],
         "sharing": [["handle"], ["exporter", "importer"], [BESIDE]]}
POOL = "plugins/pool"
WORK_CALL = re.compile(r"\b(cu(?:Event|Stream|UserObject|Graph)\w*)\s*\(")
POOL_LAYERS = ["heap", "policy", "cuda", "order", "cache", "backing", "manager"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
NAMESPACE = re.compile(r"^namespace emm::(\w+)", re.M)
FOR_CUDA_PROGRAMS = "include/emm/cuda.h"  # the others need no cuda.h
CUDA_HEADER = re.compile(r"^cuda\w*\.h$")
DLOPEN = re.compile(r"\b(dlopen|dlmopen|dlsym)\s*\(")


def sources(folder):
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".h", ".hpp", ".c", ".cpp")):
                yield os.path.join(path, name)


def names_of(levels):
    return [name for level in reversed(levels) for name in level]


def height(levels, name):
    return next(i for i, level in enumerate(levels) if name in level)


def is_above(levels, other, one):
    """Whether `other` may not be used by `one`."""
    return other != one and height(levels, other) >= height(levels, one)


def layer_of(path, lib):
    first = os.path.relpath(path, lib).split(os.sep)[0]
    return first if first in names_of(LAYERS) else None


def room_of(path, lib):
    """(layer, room) of a file in a layer that has rooms, else None; a room that is not known is None."""
    parts = os.path.relpath(path, lib).split(os.sep)
    if parts[0] not in ROOMS:
        return None
    room = parts[1] if len(parts) > 2 else BESIDE
    return parts[0], room if room in names_of(ROOMS[parts[0]]) else None


def file_of(including, name, base):
    """The path of a quoted include, or None if it is not one of this tree's."""
    for folder in (os.path.dirname(including), base):
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(path):
            return path
    return None


def unit_of(path, lib):
    return os.path.splitext(os.path.relpath(path, lib))[0]


def cycles(uses):
    """Groups of units each of which leads to each other one of its group. `uses`: unit -> those it includes."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(unit):
        number[unit] = lowest[unit] = len(number)
        stack.append(unit)
        for other in sorted(uses.get(unit, ())):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[unit] = min(lowest[unit], lowest[other])
        if lowest[unit] == number[unit]:
            group = stack[stack.index(unit):]
            del stack[-len(group):]
            found.append(sorted(group))

    for unit in sorted(uses):
        if unit not in number:
            visit(unit)
    return [group for group in found if len(group) > 1]


def pool_layer_of(path, pool):
    parts = os.path.relpath(path, pool).split(os.sep)
    if parts[0] == os.pardir:
        return None
    return "manager" if len(parts) == 1 else parts[0]


def target_layer(including, name, base, layer):
    """The layer of a quoted include, or None if it is not one of this tree's."""
    path = file_of(including, name, base)
    return layer(path, base) if path else None


def climbs(path, other, lib):
    """The layer or room above, if `path` includes the file `other` of one, and its own name; else None."""
    one, above = layer_of(path, lib), layer_of(other, lib)
    if above and is_above(LAYERS, above, one):
        return one, "layer", above
    one, above = room_of(path, lib), room_of(other, lib)
    if one and above and one[0] == above[0] and None not in one + above and is_above(ROOMS[one[0]], above[1], one[1]):
        return one[1], "room", above[1]
    return None


def faults(root):
    lib = os.path.join(root, "lib")
    uses = {}
    for path in sources(lib):
        where = os.path.relpath(path, root)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        layer = layer_of(path, lib)
        if layer is None:
            yield f"{where}: belongs to no layer ({', '.join(names_of(LAYERS))})"
            continue
        if (layer, None) == room_of(path, lib):
            yield f"{where}: belongs to no room of {layer} ({', '.join(names_of(ROOMS[layer]))})"
        for name in NAMESPACE.findall(text):
            if name in names_of(LAYERS) and is_above(LAYERS, name, layer):
                yield f"{where}: {layer} declares what is {name}'s, of the layer above it"
        for bracket, name in INCLUDE.findall(text):
            if CUDA_HEADER.match(name) and layer != "driver":
                yield f"{where}: includes {name}, which only lib/driver may"
            other = file_of(path, name, lib) if bracket == '"' else None
            climb = climbs(path, other, lib) if other else None
            if climb:
                yield f"{where}: {climb[0]} includes {name} of the {climb[1]} above it, {climb[2]}"
            if other and unit_of(other, lib) != unit_of(path, lib):
                uses.setdefault(unit_of(path, lib), set()).add(unit_of(other, lib))
        if layer not in ("dl", "driver", "loader") and DLOPEN.search(text):
            yield f"{where}: opens libraries, which only lib/dl, lib/driver and lib/loader may"
    for group in cycles(uses):
        yield f"lib: these units include each other: {', '.join(group)}"
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
