#!/usr/bin/env python3
"""check_test.py quick|full SPEC...: the conformance kit passes good plugins and finds each bad one out.

A bad plugin fails exactly the cases that stand beside its fault, in every progress mode.
"""
import json
import sys
import unittest

from emm_program import fixture, run

FULL = sys.argv[1] == "full"
SPECS = sys.argv[2:]

# libemm-NAME.so, broken as a file.
FILES = {
    "bad-exports": ["library/exports"],
    "bad-unique": ["library/unique"],
    "bad-links": ["library/dependencies"],
    "bad-storage": ["library/thread-storage"],
    "bad-stack": ["library/stack"],
}
# EMM_TEST_FAULT of libemm-bad.so.
FAULTS = {
    "explains-nothing": ["table/texts"],
    "changes-table": ["table/constant"],
    "busy-entry": ["table/quiet-entry"],
    "host-overrun": ["table/older-host"],
    "misaligned": ["memory/alignment"],
    "too-small": ["memory/sizes", "memory/traffic"],
    "other-code": ["memory/exhaustion", "memory/absurd"],
    "exhausted-for-good": ["memory/exhaustion"],
    "needs-size": ["memory/no-size"],
    "frees-anything": ["memory/wrong-free"],
    "leak-live": ["memory/leaks"],
    "leak-cached": ["memory/leaks"],
}


def failed(report):
    """Without the progress mode, each once."""
    names = [case["name"].split("@")[0] for case in report["cases"] if case["outcome"] == "failed"]
    return sorted(set(names))


def check(spec, *arguments, **variables):
    done = run("check", spec, "--json", *arguments, **variables)
    if done.returncode not in (0, 1) or not done.stdout:
        raise AssertionError(f"{spec}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout), done.returncode


class Kit(unittest.TestCase):
    def test_good_plugins_keep_every_duty(self):
        for spec in SPECS + [fixture("bad")]:
            report, status = check(spec)
            told = [case for case in report["cases"] if case["outcome"] == "failed"]
            self.assertEqual((told, status), ([], 0), spec)

    def test_each_bad_plugin_fails_exactly_its_own_cases(self):
        for fault, cases in FAULTS.items():
            with self.subTest(fault):
                report, status = check(fixture("bad"), EMM_TEST_FAULT=fault)
                self.assertEqual((failed(report), status), (sorted(cases), 1))
        for name, cases in FILES.items():
            with self.subTest(name):
                report, status = check(fixture(name))
                self.assertEqual((failed(report), status), (sorted(cases), 1))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
