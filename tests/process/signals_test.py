#!/usr/bin/env python3
"""emm and signals: it catches and ignores none, its threads take none from the program's, and a handler may end it."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import emm_program
from top_programs import HOLDER, TIMEOUT, Holder, environment, shown

EXITS_IN_HANDLER = sys.argv.pop(1)

SIGNALS = set(range(1, 65)) - {32, 33}  # glibc's own two
NEVER_BLOCKED = {9, 19}  # SIGKILL, SIGSTOP


def signals(status, name):
    """The signals of a line such as SigBlk, in a file of /proc."""
    line = next(line for line in status.read_text().splitlines() if line.startswith(name + ":"))
    mask = int(line.split()[1], 16)
    return {number for number in SIGNALS if mask >> (number - 1) & 1}


class Signals(unittest.TestCase):
    def holders(self):
        """A program that uses emm, and one under emm run, with each thread that emm has."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for run_by in ((), (emm_program.EMM, "run", "--pausable", "--plugin", "pool", "--", HOLDER)):
            holder = Holder(self, "alloc=1", run_by=run_by, EMM_EVENT_LOG=f"{folder.name}/{len(run_by)}.csv", EMM_TRACK="stack")
            self.assertIn(holder.pid, shown())
            yield holder

    def test_no_signal_is_caught_or_ignored(self):
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as plain:
            plain.stdin.write(b"x")
            plain.stdin.flush()
            plain.stdout.read(1)  # it runs
            expected = [signals(pathlib.Path(f"/proc/{plain.pid}/status"), name) for name in ("SigCgt", "SigIgn")]
            for holder in self.holders():
                status = pathlib.Path(f"/proc/{holder.pid}/status")
                self.assertEqual([signals(status, name) for name in ("SigCgt", "SigIgn")], expected)

    def test_the_threads_of_emm_block_every_signal_and_the_programs_none(self):
        for holder in self.holders():
            tasks = sorted(pathlib.Path(f"/proc/{holder.pid}/task").iterdir(), key=lambda task: int(task.name))
            blocked = {task.name: signals(task / "status", "SigBlk") for task in tasks}
            self.assertEqual(blocked.pop(str(holder.pid)), set())
            names = {name: pathlib.Path(f"/proc/{holder.pid}/task/{name}/comm").read_text().strip() for name in blocked}
            self.assertGreaterEqual(len(blocked), 2, names)  # the log's, and the one that answers emm top
            for name, mask in blocked.items():
                self.assertEqual(SIGNALS - NEVER_BLOCKED - mask, set(), names[name])

    def exits(self, plugin, *words, runs=8, **variables):
        """Runs the program so often that its handler interrupts calls at many places. One that hangs never ends."""
        for microseconds in range(500, 500 + runs * 1337, 1337):
            done = subprocess.run([emm_program.EMM, "run", "--plugin", plugin, "--", EXITS_IN_HANDLER, str(microseconds), *words],
                                  env=environment(**variables), text=True, capture_output=True, timeout=TIMEOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            yield done.stderr

    def test_a_handler_that_calls_exit_within_a_call_ends_the_program(self):
        for plugin in "pool", "passthrough", "async", "managed":
            for words in (), ("counted",), ("thread",):
                for said in self.exits(plugin, *words):
                    self.assertEqual(said, "")

    def test_a_plugin_that_hangs_does_not_keep_the_program_from_its_end(self):
        done = subprocess.run([HOLDER, "slow", "alloc=1", "hang", "exit"], env=environment(EMM_STATS="exit"),
                              text=True, capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("EMM_STATS: no table, because a call was under way at the end"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
