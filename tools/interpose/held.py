#!/usr/bin/env python3
"""held.py OUTPUT LIST CUDA_INCLUDE: writes HELD(symbol, type) for each exported form of an entry in LIST (held.txt)
that cuda.h declares; `type` is the declared function that has its signature.

held.py --unlisted LIST CUDA_INCLUDE: prints the entries of cuda.h that by their names or arguments may put work on a
device or take a handle of physical memory, and that LIST does not have. Exit status 1: there are some."""

import pathlib
import re
import sys

import entries

DECLARED = re.compile(r'\bCUresult\s+CUDAAPI\s+(cu[A-Z]\w*)\s*\(([^;]*?)\)\s*;', re.DOTALL)
INTERNAL = '\n#if defined(__CUDA_API_VERSION_INTERNAL)\n'  # begins the older and the per-thread forms
WORKS = re.compile(r'cu(Memcpy|Memset|Launch)')
CONCERNED = re.compile(r'\b(CUstream|CUmemGenericAllocationHandle|CUarrayMapInfo)\b')


def without_variant(symbol):
    return re.sub(r'_pt(ds|sz)$', '', symbol)


def name_of(symbol):
    return re.sub(r'_v\d+$', '', without_variant(symbol))


def read_list(path):
    """Whether each entry is held, by name."""
    listed = {}
    for line in path.read_text(encoding='utf-8').splitlines():
        if line.startswith(' '):
            listed.update({name: is_held for name in line.split()})
        elif line in ('held', 'passed'):
            is_held = line == 'held'
    return listed


def unlisted_in(listed, header):
    works = {name_of(symbol) for symbol, arguments in DECLARED.findall(header)
             if CONCERNED.search(arguments) or WORKS.match(symbol)}
    return sorted(works - listed.keys())


def held_in(listed, header):
    symbols = {symbol for symbol in entries.entries_of(header) if listed.get(name_of(symbol))}
    newest = header.split(INTERNAL)[0]
    renamed = dict(re.findall(r'^\s*#\s*define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_PT\w+\()?(cu[A-Z]\w*)', newest, re.MULTILINE))
    declared = {symbol for symbol, _ in DECLARED.findall(header[len(newest):])}
    # In the part of the newest forms, the macros give a prototype its version.
    declared |= {renamed.get(symbol, symbol) for symbol, _ in DECLARED.findall(newest)}
    return sorted(symbol for symbol in symbols if without_variant(symbol) in declared)


def main():
    output, listed, folder = sys.argv[1], read_list(pathlib.Path(sys.argv[2])), pathlib.Path(sys.argv[3])
    header = (folder / 'cuda.h').read_text(errors='replace')
    if output == '--unlisted':
        unlisted = unlisted_in(listed, header)
        print('\n'.join(unlisted))
        sys.exit(bool(unlisted))
    lines = [f'HELD({symbol}, {without_variant(symbol)})\n' for symbol in held_in(listed, header)]
    pathlib.Path(output).write_text(''.join(lines))


if __name__ == '__main__':
    main()
