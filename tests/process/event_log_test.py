#!/usr/bin/env python3
"""event_log_test.py PROGRAM: what EMM_EVENT_LOG has written after programs came to all kinds of ends."""
import collections
import csv
import decimal
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
COLUMNS = ["Event Type", "Device ID", "Address", "Stream", "Size (bytes)", "Free Memory",
           "Total Memory", "Current Allocs", "Start", "End", "Elapsed", "Location"]
ALLOCATIONS = {"Alloc": "Free", "Alloc Host": "Free Host", "Pin": "Unpin",
               "Alloc Managed": "Free Managed"}


class EventLog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log.csv"

    def run_program(self, *arguments, log=None):
        environment = dict(os.environ, EMM_EVENT_LOG=str(log or self.log))
        return subprocess.run([PROGRAM, *map(str, arguments)], env=environment, text=True,
                              stderr=subprocess.PIPE, timeout=120, check=False)

    def rows(self):
        with open(self.log, encoding="utf-8", newline="") as file:
            found = list(csv.reader(file))
        self.assertEqual(found[0], COLUMNS)
        self.assertEqual({len(row) for row in found}, {len(COLUMNS)})
        return [dict(zip(COLUMNS, row)) for row in found[1:]]

    def check(self, rows):
        """Times, counts and free memory; no block twice, no free missing or without allocation."""
        live, frees = {}, set(ALLOCATIONS.values())
        for row in rows:
            start, end = decimal.Decimal(row["Start"]), decimal.Decimal(row["End"])
            self.assertLessEqual(start, end)
            self.assertEqual(decimal.Decimal(row["Elapsed"]), end - start)
            if row["Event Type"] in ALLOCATIONS:
                key = ALLOCATIONS[row["Event Type"]], row["Address"]
                self.assertNotIn(key, live, row)
                live[key] = row["Size (bytes)"]
            elif row["Event Type"] in frees:
                self.assertEqual(live.pop((row["Event Type"], row["Address"]), None),
                                 row["Size (bytes)"], row)
            elif row["Event Type"] in ("Reset", "Retire"):
                live.clear()
            self.assertEqual(int(row["Current Allocs"]), len(live), row)
            used = sum(int(size) for (event, _), size in live.items() if event == "Free")
            self.assertEqual(int(row["Free Memory"]), int(rows[0]["Free Memory"])
                             + int(rows[0]["Size (bytes)"]) - used)
        return live

    def check_pairs(self, pairs):
        rows = self.rows()
        self.assertEqual(self.check(rows), {})
        counted = collections.Counter(row["Event Type"] for row in rows)
        self.assertEqual(counted, {"Alloc": pairs, "Free": pairs})

    def test_each_kind_of_event_has_real_values_in_all_columns(self):
        self.assertEqual(self.run_program("each").returncode, 0)
        rows = self.rows()
        self.check(rows)
        self.assertEqual([row["Event Type"] for row in rows],
                         ["Alloc", "Alloc Host", "Pin", "Alloc Managed", "Free Managed", "Unpin",
                          "Free Host", "Defer Begin", "Free", "Defer End", "Alloc Failure", "Trim",
                          "Alloc", "Reset", "Alloc", "Retire", "Late Free"])
        for row in rows:
            self.assertIn(PROGRAM + "+0x", row["Location"])
            self.assertGreater(int(row["Total Memory"]), 0)
        self.assertRegex(rows[0]["Location"], r"\(.*allocate.*\+0x[0-9a-f]+\)$")
        self.assertEqual([rows[0][name] for name in ("Device ID", "Address", "Stream",
                                                     "Size (bytes)")], ["0", "0x1000", "0", "80"])
        self.assertEqual((rows[8]["Stream"], rows[8]["Size (bytes)"]), ("-1", "80"))
        self.assertEqual((rows[10]["Address"], rows[10]["Stream"]), ("0x0", "0"))
        self.assertEqual(os.listdir(self.folder), ["log.csv"])

    def test_eight_threads_are_put_in_order_and_none_of_their_events_is_missing(self):
        self.assertEqual(self.run_program("threads").returncode, 0)
        self.check_pairs(8 * 20_000)

    def test_threads_that_come_and_go_leave_their_events(self):
        self.assertEqual(self.run_program("waves").returncode, 0)
        self.check_pairs(50 * 8 * 30)

    def test_what_is_recorded_before_the_process_is_killed_comes_back(self):
        for end in ("abort", "kill", "_exit"):
            with self.subTest(end):
                self.run_program(end)
                self.assertTrue((self.folder / "log.csv.spool").exists())
                self.assertEqual(self.run_program("recover", self.log).returncode, 0)
                self.check_pairs(4 * 5000)
                self.assertFalse((self.folder / "log.csv.spool").exists())
                before = self.log.read_bytes()
                self.assertEqual(self.run_program("recover", self.log).returncode, 0)
                self.assertEqual(self.log.read_bytes(), before)

    def test_what_a_killed_process_wrote_beyond_its_last_word_is_not_there_twice(self):
        self.run_program("abort")
        with open(self.log, "ab") as file:
            file.write(b"Alloc,0,0x1000,0,100,")
        self.assertEqual(self.run_program("recover", self.log).returncode, 0)
        self.check_pairs(4 * 5000)

    def test_events_after_the_log_was_completed_at_exit_are_in_it(self):
        self.assertEqual(self.run_program("late").returncode, 0)
        self.check_pairs(1010)
        self.assertEqual(os.listdir(self.folder), ["log.csv"])

    def test_a_forked_child_writes_nothing_and_the_parent_goes_on(self):
        self.assertEqual(self.run_program("fork").returncode, 0)
        self.check_pairs(20)

    def test_a_log_that_cannot_be_opened_is_one_warning_and_the_program_goes_on(self):
        done = self.run_program("fork", log=self.folder / "nowhere" / "log.csv")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("EMM_EVENT_LOG"), 1)
        self.assertRegex(done.stderr, "nowhere/log.csv.*No such file.*events are not recorded")

    def test_a_log_that_a_living_process_writes_is_left_to_it(self):
        with subprocess.Popen([PROGRAM, "wait"], env=dict(os.environ, EMM_EVENT_LOG=str(self.log)),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            second = self.run_program("fork")
            self.assertEqual(second.returncode, 0)
            self.assertIn(f"written by process {writer.pid}; events are not", second.stderr)
            completing = self.run_program("recover", self.log)
            self.assertEqual(completing.returncode, 1)
            self.assertIn(f"written by process {writer.pid}", completing.stderr)
        self.assertEqual(writer.returncode, 0)
        self.check_pairs(10)

    def test_the_process_id_can_be_part_of_the_name(self):
        self.run_program("fork", log=self.folder / "log-%p.csv")
        (name,) = os.listdir(self.folder)
        self.assertRegex(name, r"^log-[0-9]+\.csv$")

    def test_a_spool_that_is_none_is_refused_and_stays(self):
        self.log.write_text("")
        spool = self.folder / "log.csv.spool"
        spool.write_text("something else")
        done = self.run_program("recover", self.log)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not left by an event log", done.stderr)
        self.assertEqual(spool.read_text(), "something else")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
