#!/usr/bin/env python3
"""narrow.py EMM TRAFFIC FOLDER [--plugin SPEC] [--left MIB] [--runs N] [--seconds N]: what a failure of random traffic in
little memory needs. A process of its own keeps all of the device's memory but MIB (0: none, and the traffic has what there is). Then
the traffic runs as it fails, and with one thing changed at a time: a kind of step left out, another setting of emm's. A line tells how
many of the runs failed; what a failed run wrote (the latest calls of each thread, if the context was lost) is in FOLDER. Fewer failures
with a step left out: the failure needs it. Exit status 1: some run failed."""

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys

STEPS = ['foreign', 'wander', 'pinned', 'managed', 'handed', 'per_thread', 'replaced', 'lives', 'pools', 'abroad']
MIB = 1 << 20


def variants():
    """Name, settings of the traffic, options of `emm run`, environment, and whether memory is scarce."""
    yield 'as it fails', [], [], {}, True
    yield 'natively', [], None, {}, True
    yield 'frees carried out at once', [], [], {'EMM_MAX_PENDING_DEALLOCS_COUNT': '0'}, True
    yield 'the same, in plenty of memory', [], [], {'EMM_MAX_PENDING_DEALLOCS_COUNT': '0'}, False
    yield 'with waits (--sync-free)', [], ['--sync-free'], {}, True
    yield 'one thread', ['threads=1'], [], {}, True
    for step in STEPS:
        yield f'{step}=0', [f'{step}=0'], [], {}, True
    yield 'without all of them', [f'{step}=0' for step in STEPS], [], {}, True


def keep_all_but(left):
    """In a process of its own, until its input ends: one allocation of what is free now."""
    cuda = ctypes.CDLL('libcuda.so.1')
    context, ptr = ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    result = cuda.cuMemAlloc_v2(ctypes.byref(ptr), ctypes.c_size_t(max(free.value - left, MIB)))
    print(f'kept: CUDA answers {result}, {free.value // MIB} MiB were free', flush=True)
    sys.stdin.read()


class Keeper:
    def __init__(self, left):
        self.process = None
        if left:
            self.process = subprocess.Popen([sys.executable, __file__, '--keep', str(left)], text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            print(self.process.stdout.readline().strip() or 'nothing is kept: see above')

    def end(self):
        if self.process:
            self.process.communicate()


def run(arguments, settings, options, environment, log):
    command = [arguments.traffic, f'seconds={arguments.seconds}', 'rounds=1', *settings]
    if options is not None:
        command = [arguments.emm, 'run', '--plugin', arguments.plugin, *options, '--', *command]
    with open(log, 'w') as output:
        try:
            status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ, **environment),
                                    timeout=arguments.seconds * 2 + 15).returncode
        except subprocess.TimeoutExpired:
            status = 'no end'
    last = log.read_text(errors='replace').splitlines()[-1:]
    return status, (last or ['it wrote nothing'])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ['emm', 'traffic', 'folder']:
        parser.add_argument(name)
    parser.add_argument('--plugin', default='passthrough')
    for name, number in {'left': 2048, 'runs': 2, 'seconds': 5, 'captures': 0}.items():
        parser.add_argument('--' + name, type=int, default=number)
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    failed_runs = 0
    for number, (name, settings, options, environment, scarce) in enumerate(variants()):
        keeper = Keeper(arguments.left * MIB if scarce else 0)
        answers = [run(arguments, [f'captures={arguments.captures}', 'scarce=1', f'seed={seed + 1}', *settings], options, environment,
                       folder / f'{number:02}-{seed}.txt') for seed in range(arguments.runs)]
        keeper.end()
        failures = [answer for answer in answers if answer[0] != 0]
        failed_runs += len(failures)
        print(f'{number:02} {name}: {len(failures)} of {len(answers)} failed')
        for status, last in failures:
            print(f'     {status}: {last}', flush=True)
    sys.exit(failed_runs != 0)


if sys.argv[1:2] == ['--keep']:
    keep_all_but(int(sys.argv[2]))
else:
    main()
