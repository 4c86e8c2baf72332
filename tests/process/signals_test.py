#!/usr/bin/env python3
"""emm and signals: it catches and ignores none, and its threads take none from the program's."""
import pathlib
import subprocess
import tempfile
import unittest

import emm_program
from top_programs import HOLDER, Holder, environment, shown

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


if __name__ == "__main__":
    unittest.main()
