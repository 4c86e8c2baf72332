#!/usr/bin/env python3
"""report.py counts lines and branches once, and refuses what is not listed."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import report

HERE = pathlib.Path(__file__).resolve().parent


def branch(count, throw=False):
    return {"count": count, "throw": throw}


def line(number, count, *branches, function="f()"):
    return {"line_number": number, "count": count, "branches": list(branches), "function_name": function}


class Counts(unittest.TestCase):
    def test_a_line_of_two_instances_counts_once(self):
        lines, branches, _ = report.merged({"lines": [line(1, 0, branch(0), branch(2)), line(1, 2, branch(0), branch(0))]})
        self.assertEqual((lines, branches), ({1: 2}, {(1, 0): 0, (1, 1): 2}))

    def test_a_branch_that_one_copy_knows_to_be_an_exception_counts_in_none(self):
        _, branches, _ = report.merged({"lines": [line(1, 0, branch(0), branch(0)), line(1, 1, branch(1), branch(0, True))]})
        self.assertEqual(branches, {(1, 0): 1})


class Table(unittest.TestCase):
    def test_a_row_has_a_file_a_number_and_a_reason(self):
        self.assertEqual(report.rows("| file | lines | why |\n| `lib/a.cpp` | 3 | needs a GPU |"), ({"lib/a.cpp": 3}, []))
        for row in ("| `lib/a.cpp` | 3 | |", "| `lib/a.cpp` | some | needs a GPU |", "| `lib/a.cpp` | 3 |"):
            self.assertEqual(len(report.rows(row)[1]), 1, row)
        self.assertEqual(len(report.rows("| `lib/a.cpp` | 3 | why |\n| `lib/a.cpp` | 3 | why |")[1]), 1)

    def test_more_lines_than_a_row_says_are_refused(self):
        self.assertEqual(list(report.faults({"a": 3}, {"a": 3, "b": report.UNLISTED})), [])
        self.assertEqual(len(list(report.faults({"a": 3}, {"a": 4, "b": report.UNLISTED + 1}))), 2)

    def test_a_row_of_a_file_that_is_not_built_is_refused(self):
        self.assertEqual(len(list(report.faults({"a": 3}, {}))), 1)


class Command(unittest.TestCase):
    def run_on(self, counts, rows="", files=("lib/a.cpp",)):
        with tempfile.TemporaryDirectory() as root:
            for name, text in {"tests/coverage/README.md": rows, **dict.fromkeys(files, "")}.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            lines = [line(number, count, branch(count)) for number, count in enumerate(counts, 1)]
            pathlib.Path(root, "coverage.json").write_text(json.dumps({"files": [{"file": "lib/a.cpp", "lines": lines}]}),
                                                           encoding="utf-8")
            done = subprocess.run([sys.executable, HERE / "report.py", root, root], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, pathlib.Path(root, "not_run.txt").read_text(encoding="utf-8")

    def test_what_is_run_passes_and_the_rest_is_named(self):
        status, said, left = self.run_on([1] * 96 + [0] * 4, "| `lib/a.cpp` | 4 | needs a GPU |")
        self.assertEqual(status, 0, said)
        self.assertIn("all: 96.0 % of 100 lines, 96.0 % of 100 branches", said)
        self.assertEqual(left.splitlines()[0], "lib/a.cpp:97: f()")

    def test_less_than_the_goals_is_refused(self):
        status, said, _ = self.run_on([1] * 94 + [0] * 6, "| `lib/a.cpp` | 6 | needs a GPU |")
        self.assertEqual(status, 1)
        self.assertIn("lines: 94.0 % are run, the goal is 95.0 %", said)
        self.assertNotIn("branches: 94", said)

    def test_a_row_whose_file_is_not_there_is_refused(self):
        self.assertEqual(self.run_on([1], "| `lib/gone.cpp` | 4 | needs a GPU |")[0], 1)


if __name__ == "__main__":
    unittest.main()
