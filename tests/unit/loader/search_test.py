#!/usr/bin/env python3
"""search_test.py PROBE: what the loader takes from a process's environment, and when it does not."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROBE = sys.argv.pop(1)
OTHER_USER = 54321


def run(program, **environment):
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr


class Search(unittest.TestCase):
    def test_folders_are_taken_in_order_and_empty_ones_left_out(self):
        lines, warnings = run(PROBE, EMM_PLUGIN_PATH="/a::/b c:")
        self.assertEqual(lines[:2], ["path /a", "path /b c"])
        self.assertEqual(warnings, "")

    def test_a_relative_folder_is_named_in_a_warning(self):
        lines, warnings = run(PROBE, EMM_PLUGIN_PATH="/a:plugins:/b")
        self.assertEqual(lines[:2], ["path /a", "path /b"])
        self.assertIn("EMM_PLUGIN_PATH: 'plugins' is ignored: expected an absolute path", warnings)

    def test_only_1_allows_untrusted_plugins(self):
        for value, allowed in (("1", 1), ("0", 0), ("yes", 0), ("", 0)):
            self.assertIn(f"allow_untrusted {allowed}", run(PROBE, EMM_ALLOW_UNTRUSTED=value)[0])

    def test_under_elevated_privileges_each_ignored_variable_is_named(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a program another user's rights")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            program = shutil.copy(PROBE, os.path.join(folder, "probe"))
            os.chown(program, OTHER_USER, OTHER_USER)
            os.chmod(program, 0o4755)
            lines, warnings = run(program, EMM_PLUGIN_PATH="/a", EMM_ALLOW_UNTRUSTED="1")
        if f"user {OTHER_USER}" not in lines:
            self.skipTest("this file system ignores the set-user-id bit")
        self.assertIn("elevated 1", lines)
        self.assertIn("allow_untrusted 0", lines)
        self.assertNotIn("path /a", lines)
        for name in ("EMM_PLUGIN_PATH", "EMM_ALLOW_UNTRUSTED"):
            self.assertIn(f"{name} is ignored: the process has elevated privileges", warnings)


if __name__ == "__main__":
    unittest.main(verbosity=2)
