#!/usr/bin/env python3
"""usage.py ROOT: tools/quickstart and tools/test say how they are used, and then set nothing up."""
import os
import subprocess
import sys
import unittest

TOOLS = os.path.join(sys.argv.pop(1), "tools")


def run(tool, *arguments):
    return subprocess.run([os.path.join(TOOLS, tool), *arguments], capture_output=True, text=True,
                          check=False, timeout=60)


class Usage(unittest.TestCase):
    def test_who_asks_is_told_how_a_tool_is_used_and_no_more(self):
        for tool in ("quickstart", "test"):
            for wish in ("--help", "-h"):
                done = run(tool, wish)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.startswith(f"usage: tools/{tool}"), done.stdout)
                self.assertNotIn("building (", done.stdout)

    def test_what_quickstart_does_not_take_is_wrong_usage(self):
        done = run("quickstart", "--fast")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: tools/quickstart", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
