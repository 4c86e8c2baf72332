#!/usr/bin/env python3
"""narrow.py MODEL [NAME=NUMBER...]: the fewest steps of a round that still fail, with EMM_PLUGIN, EMM_DRIVER and EMM_SIM as
they are set: name the seed. It leaves steps out, half of them at first, as long as the round fails in the same way. Exit status 1: it
does not fail."""

import re
import subprocess
import sys


def failure_of(command, steps):
    """How the round of these steps ends, without addresses and numbers; None: well."""
    done = subprocess.run([*command, 'rounds=1', 'chosen=1'], input=' '.join(map(str, steps)), text=True, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = (done.stdout.strip() or 'nothing').splitlines()
    told = next((line for line in lines if line.startswith('simcuda: ')), lines[-1])
    return None if done.returncode == 0 else (done.returncode, re.sub(r'0x[0-9a-f]+|[0-9]+', 'N', told)[:60])


def narrowed(steps, fails):
    """Leaves out parts of the list while `fails` says so of the rest."""
    parts = 2
    while len(steps) > 1:
        size = max(1, len(steps) // parts)
        for begin in range(0, len(steps), size):
            rest = steps[:begin] + steps[begin + size:]
            if fails(rest):
                steps, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts *= 2
    return steps


def main():
    command = sys.argv[1:]
    count = next((int(text[6:]) for text in command if text.startswith('steps=')), 2000)
    expected = failure_of(command, range(count))
    if not expected:
        sys.exit('the round does not fail')
    steps = narrowed(list(range(count)), lambda rest: failure_of(command, rest) == expected)
    print(f'{len(steps)} steps: echo {" ".join(map(str, steps))} | {" ".join(command)} rounds=1 chosen=1')
    subprocess.run([*command, 'rounds=1', 'chosen=1', 'last=250'], input=' '.join(map(str, steps)), text=True, check=False)


main()
