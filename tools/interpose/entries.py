#!/usr/bin/env python3
"""entries.py OUTPUT SOURCE...: writes ENTRY(name, index) for each function that one of the sources names: a
folder with CUDA's headers (cuda.h, and those beside it for OpenGL, EGL, VDPAU and profiling), served.def,
some of whose entries the headers of an older CUDA lack, or a text file of names by what they begin with."""

import pathlib
import re
import sys

HEADERS = ['cuda.h', 'cudaGL.h', 'cudaEGL.h', 'cudaVDPAU.h', 'cudaProfiler.h']
PROTOTYPE = re.compile(r'\bCUresult\s+CUDAAPI\s+(cu[A-Z]\w*)\s*\(')
RENAMED = re.compile(r'^\s*#\s*define\s+cu[A-Z]\w*\s+(cu[A-Z]\w*)\s*$', re.MULTILINE)
PER_THREAD = re.compile(r'^\s*#\s*define\s+cu[A-Z]\w*\s+__CUDA_API_PT(DS|SZ)\((cu[A-Z]\w*)\)', re.MULTILINE)
SERVED = re.compile(r'^SERVED(?:_STREAM)?\(\w+,\s*\d+,\s*(\w+)(?:,\s*(\w+))?\)', re.MULTILINE)


def entries_of(text):
    """The exported names in the text of a header, as its macros and prototypes give them."""
    names = set(PROTOTYPE.findall(text)) | set(RENAMED.findall(text))
    for kind, name in PER_THREAD.findall(text):
        names |= {name, f'{name}_pt{kind.lower()}'}
    return names


def entries_in(folder):
    names = set()
    for header in HEADERS:
        path = pathlib.Path(folder, header)
        if path.exists():
            names |= entries_of(path.read_text(errors='replace'))
    names.discard('cuWGLGetDevice')  # of Windows
    return names


def listed_in(file):
    names = set()
    for line in file.read_text(encoding='utf-8').splitlines():
        if line.startswith(' '):
            names |= {prefix + rest for rest in line.split()}
        elif not line.startswith('#'):
            prefix = line.rstrip(':')
    return names


def served_in(file):
    found = SERVED.findall(file.read_text(encoding='utf-8'))
    return {name for pair in found for name in pair if name}


def names_of(source):
    if source.is_dir():
        return entries_in(source)
    return served_in(source) if source.suffix == '.def' else listed_in(source)


def main():
    output, *sources = map(pathlib.Path, sys.argv[1:])
    names = set().union(*map(names_of, sources))
    lines = [f'ENTRY({name}, {index})' for index, name in enumerate(sorted(names))]
    lines.append(f'ENTRY_COUNT({len(names)})')
    output.write_text('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
