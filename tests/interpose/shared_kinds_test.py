#!/usr/bin/env python3
"""shared_kinds_test.py PLUGIN COUNT...: programs under emm run that share a limit of 8 GiB obtain it together, of each kind
of device memory, and no more; for each COUNT so many programs, in a ring: each begins to take behind another. Prints a row
for each kind. EMM_TEST_PROGRAM is the tool, EMM_TEST_LIMIT the program (limit.cpp)."""
import os
import subprocess
import sys
import tempfile
import unittest

PLUGIN, COUNTS = sys.argv[1], [int(count) for count in sys.argv[2:]]
PIECES = 512  # of 16 MiB: the limit


class Member:
    def __init__(self, folder, number):
        self.process = subprocess.Popen(
            [os.environ["EMM_TEST_PROGRAM"], "run", "--plugin", PLUGIN, "--limit", "8GiB", "--shared", "ring", "--",
             os.environ["EMM_TEST_LIMIT"], "dlsym", "member"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "EMM_LIMIT_FOLDER": folder})
        self.number = number

    def kinds(self):
        return list(iter(lambda: self.process.stdout.readline().strip(), ""))

    def tell(self, kind, count):
        self.process.stdin.write(f"{kind} {count}\n")
        self.process.stdin.flush()

    def told(self):
        return int(self.process.stdout.readline())

    def ask(self, kind, count):
        self.tell(kind, count)
        return self.told()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


class Ring(unittest.TestCase):
    def test_programs_obtain_a_limit_together_of_each_kind_and_no_more(self):
        for count in COUNTS:
            with tempfile.TemporaryDirectory() as folder:
                members = [Member(folder, number) for number in range(count)]
                kinds = [member.kinds() for member in members][0]
                for number, kind in enumerate(kinds):
                    with self.subTest(kind=kind, programs=count):
                        self.take_all(members[number % count:] + members[:number % count], number, kind)
                self.assertEqual([member.end() for member in members], [0] * count)

    def take_all(self, ring, number, kind):
        """The last one until it is refused; then none gets a piece."""
        obtained = sum(member.ask(number, max(1, PIECES // len(ring))) for member in ring[:-1])
        obtained += ring[-1].ask(number, 2 * PIECES)
        print(f"| {PLUGIN} | {len(ring)} | {kind} | {obtained * 16} MiB |", flush=True)
        further = sum(member.ask(number, 1) for member in (ring[0], ring[len(ring) // 2]))
        for member in ring:
            member.tell(number, 0)
        for member in ring:
            member.told()
        self.assertLessEqual(obtained + further, PIECES)
        self.assertGreaterEqual(obtained, PIECES * 0.99)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
