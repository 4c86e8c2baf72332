#!/usr/bin/env python3
"""tracking_test.py INTERPOSER DRIVER LIBEMM CALLER: who a Python program's allocations are asked for by, under
`emm run --track` on the simulated driver. CALLER is a build of release/library.c."""
import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

INTERPOSER, DRIVER, LIBEMM, CALLER = sys.argv[1:5]
FOLDER = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(FOLDER, "tracking_program.py")
THROUGH_LIBRARY, WITH_LOCK, WITHOUT_LOCK = str(1 << 20), str(2 << 20), str(3 << 20)
TOO_MUCH = str(1 << 39)
NOT_SUPPORTED = -4  # emm_status
# The places of CPython's frames, which a thread without the lock reads, are known for these versions.
FRAMES_ARE_KNOWN = sys.implementation.name == "cpython" and (3, 9) <= sys.version_info < (3, 14)


def start(program, *words, python=sys.executable, **variables):
    folders = [os.path.dirname(INTERPOSER), os.path.dirname(LIBEMM)]
    environment = dict(os.environ, LD_PRELOAD=INTERPOSER, LD_LIBRARY_PATH=":".join(folders), EMM_PLUGIN="pool",
                       EMM_DRIVER=DRIVER, EMM_SIM="memory=1GiB", **variables)
    return subprocess.run([python, os.path.join(FOLDER, program), *words], env=environment, capture_output=True,
                          text=True, timeout=120, check=False)


def run(**variables):
    done = start("tracking_program.py", LIBEMM, CALLER, **variables)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout), done.stderr


class Tracking(unittest.TestCase):
    maxDiff = None

    def test_the_library_that_asked_is_told_and_none_of_emms_or_libffi(self):
        told, _ = run(EMM_TRACK="module")
        live = told["told"]
        self.assertEqual(os.path.realpath(live[THROUGH_LIBRARY]["module"]), os.path.realpath(CALLER))
        for size in (WITH_LOCK, WITHOUT_LOCK):
            self.assertRegex(os.path.basename(live[size]["module"]), "^(_ctypes|python|libpython)")
        self.assertEqual([one["native"] for one in live.values()], [[], [], []])

    def test_one_line_of_python_is_told_with_the_library_the_innermost_of_the_programs_own(self):
        told, _ = run(EMM_TRACK="module")
        for size in (WITH_LOCK, WITHOUT_LOCK, THROUGH_LIBRARY):
            is_told = size == WITH_LOCK or FRAMES_ARE_KNOWN
            self.assertEqual([[file, line, function.split(".")[-1]] for file, line, function in told["told"][size]["python"]],
                             [[PROGRAM, *told["expected"][size][0]]] if is_told else [])

    def test_what_is_allocated_inside_of_tags_has_their_names(self):
        for track in "module", "stack":
            live = run(EMM_TRACK=track)[0]["told"]
            self.assertEqual([live[size]["tag"] for size in (THROUGH_LIBRARY, WITH_LOCK, WITHOUT_LOCK)],
                             ["serve/decode 1", None, None])

    def test_lines_of_python_are_told_whether_the_caller_holds_the_lock_or_not(self):
        told, _ = run(EMM_TRACK="stack")
        live = told["told"]
        for size in (WITH_LOCK, WITHOUT_LOCK, THROUGH_LIBRARY):
            is_told = size == WITH_LOCK or FRAMES_ARE_KNOWN
            self.assertEqual([[file, line, function.split(".")[-1]] for file, line, function in live[size]["python"]],
                             [[PROGRAM, *one] for one in told["expected"][size]] if is_told else [])
        self.assertEqual(live[THROUGH_LIBRARY]["native"][0], live[THROUGH_LIBRARY]["module"])
        self.assertGreater(len(live[WITH_LOCK]["native"]), 3)

    def test_out_of_memory_names_the_libraries(self):
        told, errors = run(EMM_TRACK="stack")
        self.assertEqual(told["too_much"], 2)
        self.assertEqual(errors.count("out of device memory on device 0: 512.00 GiB"), 1, errors)
        for part in (os.path.basename(CALLER), "live by library:", "live by caller:", f"{PROGRAM}:", "innermost",
                     "remainder", "hint: the device has 1.00 GiB in all"):
            self.assertIn(part, errors)
        if FRAMES_ARE_KNOWN:
            line = told["expected"][TOO_MUCH][0][0]
            self.assertIn(f"asked for by {PROGRAM}:{line} (main) < {PROGRAM}:", errors)

    def test_what_was_taken_from_the_driver_itself_is_told_by_library(self):
        _, errors = run(EMM_TRACK="module")
        part = errors.partition("taken from the driver itself, by library:\n")[2].splitlines()
        # Physical memory, and a pool of the program's own, with its reserved bytes.
        self.assertRegex(part[0], r"48\.00 MiB  100 % +2 allocations  .*/(_ctypes|python|libpython)", errors)

    def test_without_tracking_nothing_is_told_and_nothing_written(self):
        told, errors = run()
        self.assertEqual((told["told"], told["too_much"], errors), (NOT_SUPPORTED, 2, ""))

    def test_the_report_can_be_turned_off(self):
        told, errors = run(EMM_TRACK="module", EMM_OOM_REPORT="off")
        self.assertEqual((len(told["told"]), told["too_much"], errors), (3, 2, ""))

    def test_a_recording_has_the_caller_and_not_the_interposer(self):
        for variables in ({}, {"EMM_TRACK": "module"}, {"EMM_TRACK": "stack"}):
            with tempfile.TemporaryDirectory() as folder:
                log = os.path.join(folder, "log.csv")
                told, _ = run(EMM_EVENT_LOG=log, **variables)
                with open(log, encoding="utf-8") as file:
                    where = {row["Size (bytes)"]: row["Location"] for row in csv.DictReader(file)}
            self.assertIn(os.path.basename(CALLER) + "+0x", where[THROUGH_LIBRARY])
            self.assertIn("allocate_here", where[THROUGH_LIBRARY])
            for location in where.values():
                self.assertNotIn("libemm-run", location)
            calls = [f"{PROGRAM}:{line} ({function})" for line, function in told["expected"][THROUGH_LIBRARY]]
            most = {"stack": None, "module": 1}.get(variables.get("EMM_TRACK"), 0) if FRAMES_ARE_KNOWN else 0
            self.assertEqual(where[THROUGH_LIBRARY].split("\t")[1:], [*calls[:most], "tag serve/decode 1"])
            failed = [f"{PROGRAM}:{line} ({function})" for line, function in told["expected"][TOO_MUCH]]
            self.assertEqual(where[TOO_MUCH].split("\t")[1:], failed[:most])

    def test_greenlets_that_share_a_stack_allocate_until_the_device_is_full(self):
        for variables in ({"EMM_TRACK": "stack"}, {"EMM_TRACK": "module"}, {"EMM_RUN": "release=torch+cupy"}):
            with self.subTest(**variables):
                done = start("greenlets_program.py", python=os.environ.get("EMM_TEST_GREENLET", sys.executable),
                             **variables)
                if done.returncode == 77 and "EMM_TEST_GREENLET" not in os.environ:
                    self.skipTest("greenlet is not installed")
                self.assertEqual((done.returncode, done.stdout), (0, "64\n"), done.stderr[-2000:])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
