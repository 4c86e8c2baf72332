#!/usr/bin/env python3
"""runtime_test.py INTERPOSER DRIVER WITNESS SOURCE RUNTIME: every lookup of NVIDIA's CUDA runtime in the
folder RUNTIME, shared and static, goes through the interposer: the witness, which stands for the
driver, is asked by the interposer and by libemm alone. The simulated driver is none that the runtime
runs on, so that what it does afterwards does not matter."""

import collections
import os
import pathlib
import subprocess
import sys
import tempfile

LOOKUPS = 400  # at least: any CUDA runtime looks up so many
MEMORY = {'cuMemAlloc', 'cuMemFree', 'cuMemAllocAsync', 'cuMemFreeAsync', 'cuMemHostAlloc', 'cuMemGetInfo',
          'cuStreamCreate', 'cuStreamBeginCapture', 'cuPointerGetAttribute', 'cuIpcGetMemHandle'}


def build(source, library, program):
    """With the runtime as a file: a static one becomes a part of the program."""
    subprocess.run(['cc', source, str(library), '-o', program, f'-Wl,-rpath,{library.parent}', '-ldl', '-lrt',
                    '-lpthread', '-lm', '-lstdc++'], check=True)


def run(program, interposer, driver, witness):
    folder = os.path.dirname(interposer)
    environment = dict(os.environ, LD_PRELOAD=interposer, LD_LIBRARY_PATH=folder, EMM_DRIVER=witness,
                       WITNESS_DRIVER=driver, EMM_PLUGIN='passthrough')
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f'{program}: status {done.returncode}: {done.stderr[-1000:]}'
    askers, names = collections.Counter(), set()
    for line in done.stderr.splitlines():
        if line.startswith('witness: '):
            name, asker = line[len('witness: '):].split(' for ', 1)
            askers[os.path.realpath(asker)] += 1
            names.add(name)
    return askers, names


def check(library, interposer, driver, witness, source):
    with tempfile.TemporaryDirectory() as scratch:
        program = os.path.join(scratch, 'runtime')
        build(source, library, program)
        askers, names = run(program, interposer, driver, witness)
    ours = askers.pop(os.path.realpath(interposer), 0)
    others = {asker for asker in askers if not os.path.basename(asker).startswith('libemm.so')}
    assert not others, f'{library.name}: the driver was asked past the interposer by {others}'
    assert ours >= LOOKUPS, f'{library.name}: expected {LOOKUPS} lookups or more, found {ours}'
    assert MEMORY <= names, f'{library.name}: never looked for: {MEMORY - names}'
    print(f'{library.name}: {ours} lookups, all through the interposer')


def main():
    interposer, driver, witness, source, runtime = sys.argv[1:]
    libraries = sorted(pathlib.Path(runtime).glob('**/libcudart*'))
    if not libraries:
        print(f'skipped: no CUDA runtime in {os.path.basename(runtime)}: tools/test fetches one')
        sys.exit(77)
    for library in libraries:
        check(library, interposer, driver, witness, source)


if __name__ == '__main__':
    main()
