#!/usr/bin/env python3
"""progress.py SETUP: what tools/setup.sh shows of a build, on a terminal and elsewhere."""
import os
import pathlib
import pty
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
logged build bash -c 'printf %s "$0"; exit "$1"' '{LINES}' "$2" || exit 7
"""


class Progress(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, status, **streams):
        return subprocess.run(["bash", "-c", SCRIPT, "bash", self.folder, str(status)], check=False, **streams)

    def on_terminal(self, status):
        """The exit status, and what the terminal gets."""
        terminal, end = pty.openpty()
        done = self.start(status, stdout=end, stderr=subprocess.DEVNULL)
        os.close(end)
        shown = b""
        try:
            while part := os.read(terminal, 4096):
                shown += part
        except OSError:  # nothing is left, and the other end is closed
            os.close(terminal)
        return done.returncode, shown.decode()

    def log(self):
        return (self.folder / "build.log").read_text()

    def test_a_terminal_gets_the_steps_in_one_line_which_is_empty_in_the_end(self):
        status, shown = self.on_terminal(0)
        self.assertEqual((status, shown.count("\n")), (0, 0))
        self.assertEqual(shown.split("\r\x1b[K"), ["", "[1/2] Compiling a.cpp", "[2/2] Linking b", ""])
        self.assertEqual(self.log(), LINES)

    def test_a_failure_is_one_on_a_terminal_too(self):
        self.assertEqual(self.on_terminal(3)[0], 7)

    def test_without_a_terminal_the_log_has_all_and_a_failure_tells_the_last_lines(self):
        done = self.start(0, capture_output=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr, self.log()), (0, b"", LINES))
        done = self.start(3, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (7, ""))
        self.assertIn("[2/2] Linking b", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
