#!/usr/bin/env python3
"""progress.py SETUP: what tools/setup.sh shows of a build, on a terminal and elsewhere."""
import itertools
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import unittest

SETUP = sys.argv.pop(1)
LINES = "ninja: Entering directory\n[1/2] Compiling a.cpp\nwarning: [x]\n[2/2] Linking b\n"
SCRIPT = f"""
set -euo pipefail
source {SETUP}
logs=$1
progress_seconds=${{3:-$progress_seconds}}
logged build bash -c "$2" '{LINES}' "$logs/seen" || exit 7
"""
BUILDS = 'printf %s "$0"'
FAILS = BUILDS + "; exit 3"
WAITS = 'until [ -e "$1" ]; do sleep 0.1; done'


class Progress(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, command, *seconds, **streams):
        return subprocess.Popen(["bash", "-c", SCRIPT, "bash", self.folder, command, *seconds], text=True, **streams)

    def on_terminal(self, command):
        """The exit status, and what the terminal gets; WAITS ends once that is seconds that have gone by."""
        terminal, end = pty.openpty()
        with self.start(command, stdout=end, stderr=subprocess.DEVNULL) as running:
            os.close(end)
            shown = b""
            try:
                while part := os.read(terminal, 4096):
                    shown += part
                    if re.search(rb"[1-9] s  ", shown):
                        (self.folder / "seen").touch()
            except OSError:  # nothing is left, and the other end is closed
                os.close(terminal)
        return running.returncode, shown.decode()

    def log(self):
        return (self.folder / "build.log").read_text()

    def test_a_terminal_gets_the_steps_in_one_line_which_is_empty_in_the_end(self):
        status, shown = self.on_terminal(BUILDS)
        self.assertEqual((status, shown.count("\n")), (0, 0))
        steps = [re.sub(r"^\d+ s  ", "", line) for line in shown.split("\r\x1b[K")]
        self.assertEqual([step for step, _ in itertools.groupby(steps)],
                         ["", "ninja: Entering directory", "[1/2] Compiling a.cpp", "[2/2] Linking b", ""])
        self.assertEqual(self.log(), LINES)

    def test_seconds_go_by_on_a_terminal_where_no_line_comes(self):
        self.assertEqual(self.on_terminal(WAITS)[0], 0)

    def test_a_failure_is_one_on_a_terminal_too(self):
        self.assertEqual(self.on_terminal(FAILS)[0], 7)

    def test_without_a_terminal_a_long_step_tells_now_and_then_how_far_it_is(self):
        with self.start(BUILDS + "; " + WAITS, "1", stdout=subprocess.PIPE) as running:
            for line in running.stdout:
                if re.fullmatch(r"\.\.\. [1-9]\d* s  \[2/2\] Linking b\n", line):
                    (self.folder / "seen").touch()
        self.assertEqual((running.returncode, self.log()), (0, LINES))

    def test_without_a_terminal_the_log_has_all_and_a_failure_tells_the_last_lines(self):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.start(BUILDS, **streams) as running:
            self.assertEqual((running.communicate(), running.returncode, self.log()), (("", ""), 0, LINES))
        with self.start(FAILS, **streams) as running:
            out, errors = running.communicate()
            self.assertEqual((running.returncode, out), (7, ""))
            self.assertIn("[2/2] Linking b", errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
