#!/usr/bin/env python3
"""numba_summary_test.py GPU: what numba_clients.py in the folder GPU reads in the suite's output."""
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))

import numba_clients

ENDED = """test_sum (numba.cuda.tests.test_a.A.test_sum) ... ok
test_types (numba.cuda.tests.test_a.A.test_types) ... ERROR
ERROR
test_old (numba.cuda.tests.test_a.A.test_old) ... expected failure
test_new (numba.cuda.tests.test_a.A.test_new)
What is new. ... skipped 'not here'

======================================================================
ERROR: test_types (numba.cuda.tests.test_a.A.test_types) [for int8]
----------------------------------------------------------------------
======================================================================
ERROR: test_types (numba.cuda.tests.test_a.A.test_types) [for int16]
----------------------------------------------------------------------
Ran 4 tests in 1.500s

FAILED (errors=2, skipped=1, expected failures=13)
"""


class Summary(unittest.TestCase):
    def test_a_test_whose_parts_fail_is_one_failure(self):
        found = numba_clients.summary(ENDED, 1, 2.0)
        self.assertEqual((4, 1, 1, 1.5), tuple(
            found[name] for name in ("tests", "failed", "skipped", "seconds")))
        self.assertEqual(["numba.cuda.tests.test_a.A.test_types"], found["bad"])

    def test_a_run_that_was_cut_off_tells_what_had_ended(self):
        found = numba_clients.summary(ENDED[:ENDED.index("test_old")], -9, 2.0)
        self.assertEqual((False, 2, 1), (found["finished"], found["tests"], found["failed"]))


if __name__ == "__main__":
    unittest.main()
