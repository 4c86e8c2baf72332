#!/usr/bin/env python3
"""lost_test.py TRAFFIC DRIVER: random traffic whose context is lost, which the simulated driver stages, ends at once, with
one sentence and the latest calls of each thread, the call that was told first among them. That may be another one than the
call that failed."""

import os
import re
import subprocess
import sys

THREADS = 4
CALLS = 16
CALL = re.compile(r'  +[0-9.]+ us, thread (\d+): (\w+)\(.*\): (has not returned|(\d+) after [0-9.]+ us)')


def run(traffic, driver, fault):
    environment = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(driver),
                       EMM_SIM=f'devices=3,memory=8GiB,progress=random,fail={fault}',
                       ASAN_OPTIONS='detect_leaks=0')
    # A meeting has a thread more.
    return subprocess.run([traffic, 'seconds=60', f'threads={THREADS}', f'calls={CALLS}', 'meetings=0'],
                          env=environment, capture_output=True, text=True, timeout=100)


def check(traffic, driver, call, code):
    done = run(traffic, driver, f'{call}@300:{code}')
    lines = done.stderr.splitlines()
    sentence = lines[0].partition('; the latest')[0] if lines else ''
    told = re.fullmatch(rf'(\w+): CUDA error {code}: the context is lost', sentence)
    calls = [match for match in map(CALL.fullmatch, lines) if match]
    assert done.returncode == 1, f'{call}: status {done.returncode}: {done.stderr[-1000:]}'
    assert told and lines[-1].startswith(sentence), f'{call}: {lines[0]} ... {lines[-1]}'
    assert len(calls) == len(lines) - 2, f'{call}: lines that are no calls: {lines}'
    kept = {}
    for match in calls:
        kept[match[1]] = kept.get(match[1], 0) + 1
    assert '0' in kept and 1 < len(kept) <= THREADS + 1, f'{call}: expected main and its threads, found {kept}'
    assert max(kept.values()) == CALLS, f'{call}: expected {CALLS} calls of the busiest thread, found {kept}'
    assert any(match[2] == told[1] and match[4] == str(code) for match in calls), f'{call}: it is not among them'


def main():
    traffic, driver = sys.argv[1:]
    check(traffic, driver, 'cuMemsetD32Async', 700)
    check(traffic, driver, 'cuMemFreeAsync', 719)
    check(traffic, driver, 'cuStreamSynchronize', 700)


main()
