#!/usr/bin/env python3
"""event_log_test.py PROGRAM: what EMM_EVENT_LOG has written after programs came to all kinds of ends."""
import collections
import csv
import decimal
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.realpath(sys.argv[1])
COLUMNS = ["Event Type", "Device ID", "Address", "Stream", "Size (bytes)", "Free Memory",
           "Total Memory", "Current Allocs", "Start", "End", "Elapsed", "Location", "Context"]
OTHER_USER = 65534
ALLOCATIONS = {"Alloc": "Free", "Alloc Host": "Free Host", "Pin": "Unpin",
               "Alloc Managed": "Free Managed"}


class EventLog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log.csv"

        self.spool = self.folder / "log.csv.spool"

    def environment(self, log=None, **variables):
        return dict(os.environ, EMM_EVENT_LOG=str(log or self.log), **variables)

    def run_program(self, *arguments, log=None, cwd=None, **variables):
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=cwd, text=True,
                              env=self.environment(log, **variables), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60, check=False)

    def start_program(self, scenario):
        """The process, once it has recorded something; it waits for a line then."""
        process = subprocess.Popen([PROGRAM, scenario], env=self.environment(), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "recorded\n")
        return process

    def check_not_recorded(self, reason):
        """One warning, and the program comes to its end; nothing waits for anything."""
        done = self.run_program("fork")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("[warn"), 1, done.stderr)
        self.assertRegex(done.stderr, f"EMM_EVENT_LOG: .*{reason}.*; events are not recorded")

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

    def test_free_and_total_memory_are_those_of_the_devices_bound(self):
        self.run_program("each", EMM_LIMIT="1GiB")
        row = self.rows()[0]
        self.assertEqual((row["Total Memory"], row["Free Memory"]), (str(1 << 30), str((1 << 30) - 80)))

    def test_the_end_of_a_context_leaves_the_blocks_of_another_one_on_its_device(self):
        self.assertEqual(self.run_program("contexts").returncode, 0)
        kept, dropped, retired = self.rows()
        self.assertEqual([row["Size (bytes)"] for row in (kept, dropped)], ["5000", "3000"])
        self.assertNotEqual(kept["Context"], dropped["Context"])
        self.assertEqual([retired[name] for name in ("Event Type", "Context", "Current Allocs")],
                         ["Retire", dropped["Context"], "1"])

    def test_a_program_whose_path_has_control_characters_gives_rows_of_one_line(self):
        folder = self.folder / "two\nlines \x1b[2J\\"
        folder.mkdir()
        program = shutil.copy(PROGRAM, folder / "program")
        subprocess.run([program, "each"], env=self.environment(), check=True, timeout=60)
        lines = self.log.read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(lines), 1 + 17)
        for row in self.rows():
            self.assertIn("two lines ?[2J\\/program+0x", row["Location"])
        self.assertRegex(self.rows()[0]["Location"], r"\(.*allocate.*\+0x[0-9a-f]+\)$")  # read from that file

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
                self.assertTrue(self.spool.exists())
                self.assertEqual(self.run_program("recover", self.log).returncode, 0)
                self.check_pairs(4 * 5000)
                self.assertFalse(self.spool.exists())
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
        with self.start_program("wait") as writer:
            second = self.run_program("fork")
            self.assertEqual(second.returncode, 0)
            self.assertIn(f"written by process {writer.pid}; events are not", second.stderr)
            completing = self.run_program("recover", self.log)
            self.assertEqual(completing.returncode, 1)
            self.assertIn(f"written by process {writer.pid}", completing.stderr)
            writer.communicate("\n")
        self.assertEqual(writer.returncode, 0)
        self.check_pairs(10)

    def test_completing_ones_own_log_is_refused_and_it_stays_safe_from_other_processes(self):
        with self.start_program("recover-own") as writer:
            self.check_not_recorded(f"written by process {writer.pid}")
            said = writer.communicate("\n")[1]
        self.assertEqual(writer.returncode, 0, said)
        self.assertIn("written by this process", said)
        self.check_pairs(20)
        self.assertEqual(os.listdir(self.folder), ["log.csv"])

    def test_a_second_copy_of_the_library_in_one_process_warns_and_leaves_the_log_alone(self):
        done = self.run_program("twice")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("written by this process; events are not recorded", done.stderr)
        self.check_pairs(20)

    def test_a_log_is_not_written_under_two_names(self):
        with self.start_program("wait") as writer:
            other = self.folder / "other.csv"
            os.link(self.log, other)
            second = self.run_program("fork", log=other)
            self.assertEqual(second.returncode, 0)
            self.assertIn("other.csv is being written by another process", second.stderr)
            writer.communicate("\n")
        self.check_pairs(10)

    def test_a_child_that_outlives_its_killed_parent_does_not_keep_the_log(self):
        with subprocess.Popen([PROGRAM, "orphan"], env=self.environment(),
                              stdin=subprocess.PIPE) as parent:
            parent.wait(60)
            done = self.run_program("recover", self.log)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.check_pairs(4 * 5000)

    def test_of_processes_that_come_and_go_one_at_a_time_writes_the_log(self):
        for _ in range(8):
            crowd = [subprocess.Popen([PROGRAM, "fork"], env=self.environment(), text=True,
                                      stderr=subprocess.PIPE) for _ in range(6)]
            warnings = [process.communicate(timeout=60)[1].count("[warn") for process in crowd]
            self.assertEqual({process.returncode for process in crowd}, {0})
            self.assertLess(sum(warnings), len(crowd))
            self.check_pairs(20)
            self.assertEqual(os.listdir(self.folder), ["log.csv"])

    def test_a_limit_on_the_size_of_files_ends_the_log_and_not_the_program(self):
        done = self.run_program("slowly", EMM_TEST_FILE_LIMIT=str(2 << 20))
        self.assertEqual((done.returncode, done.stdout), (0, "came to its end\n"), done.stderr)
        self.assertEqual(done.stderr.count("[warn"), 1, done.stderr)
        self.assertRegex(done.stderr, "cannot write .*log.csv: File too large.*the log ends here")
        self.check(self.rows())
        self.assertEqual(self.run_program("recover", self.log).returncode, 0)
        self.assertGreater(len(self.rows()), 10_000)
        self.check(self.rows())
        done = self.run_program("slowly", EMM_TEST_FILE_LIMIT="4096")
        self.assertEqual((done.returncode, done.stdout), (0, "came to its end\n"), done.stderr)
        self.assertEqual(done.stderr.count("[warn"), 1, done.stderr)
        self.assertIn("File too large; events are not recorded", done.stderr)
        self.assertFalse(self.spool.exists())

    def test_a_fifo_as_log_or_spool_is_not_waited_for_and_stays(self):
        for path in self.log, self.spool:
            with self.subTest(path.name):
                os.mkfifo(path)
                self.check_not_recorded(f"{path.name} is a FIFO; expected a regular file")
                self.assertTrue(path.is_fifo())
                path.unlink()
        self.run_program("kill")
        self.log.unlink()
        os.mkfifo(self.log)
        done = self.run_program("recover", self.log)
        self.assertEqual(done.returncode, 1)
        self.assertIn("log.csv is a FIFO", done.stderr)

    def test_a_symbolic_link_as_log_or_spool_is_not_followed_and_stays(self):
        target = self.folder / "precious"
        for path in self.log, self.spool:
            for content in None, "precious":
                with self.subTest(path.name, content=content):
                    if content:
                        target.write_text(content)
                    path.symlink_to(target)
                    self.check_not_recorded(f"{path.name} is a symbolic link")
                    self.assertTrue(path.is_symlink())
                    self.assertEqual(content, target.read_text() if target.exists() else None)
                    path.unlink()
            target.unlink()

    @unittest.skipIf(os.geteuid() != 0, "needs a file of another user")
    def test_a_log_or_spool_of_another_user_is_left_alone(self):
        for path in self.log, self.spool:
            with self.subTest(path.name):
                path.write_text("theirs")
                os.chown(path, OTHER_USER, OTHER_USER)
                self.check_not_recorded(f"{path.name} belongs to another user")
                self.assertEqual(path.read_text(), "theirs")
                path.unlink()
        self.run_program("kill")
        os.chown(self.spool, OTHER_USER, OTHER_USER)
        done = self.run_program("recover", self.log)
        self.assertEqual(done.returncode, 1)
        self.assertIn("log.csv.spool belongs to another user", done.stderr)
        self.assertTrue(self.spool.exists())

    def test_a_file_that_is_no_spool_is_not_written_over(self):
        self.spool.write_text("something else")
        self.check_not_recorded("was not left by an event log")
        self.assertEqual(self.spool.read_text(), "something else")

    def test_a_program_that_changes_its_folder_still_removes_its_spool(self):
        done = self.run_program("chdir", log="log.csv", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.check_pairs(10)
        self.assertEqual(os.listdir(self.folder), ["log.csv"])

    def killed(self, **changes):
        """A killed process's spool, in which some bytes are others. What is in the log already is not read there again, so
        the process has to be killed before it has written a row, which it does 20 times a second."""
        for _ in range(20):
            self.run_program("kill")
            if len(self.log.read_bytes().splitlines()) == 1:
                break
        else:
            self.skipTest("each of 20 processes took so long that rows were written before it was killed")
        with open(self.spool, "r+b") as file:
            for offset, data in changes.values():
                file.seek(offset)
                file.write(data)

    def check_refused(self, *reason):
        log, spool = self.log.stat(), self.spool.stat()
        done = self.run_program("recover", self.log)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        for words in reason:
            self.assertIn(words, done.stderr)
        for before, path in (log, self.log), (spool, self.spool):
            self.assertEqual((before.st_size, before.st_mtime_ns),
                             (path.stat().st_size, path.stat().st_mtime_ns))

    def test_a_spool_that_says_what_cannot_be_is_refused_and_nothing_changes(self):
        record = 4096 + 252 * 1024 + 64
        self.killed(type=(record + 58, b"\xc8"))
        self.check_refused("an event of type 200")
        self.killed(bytes=(40, struct.pack("<QQ", 1 << 40, 1 << 40)))
        self.check_refused("1099511627776 bytes of", "log.csv", "found ")
        self.killed(bytes=(40, struct.pack("<QQ", 50, 50)))
        self.check_refused("no row of", "ends at byte 50")
        for scale in float("nan"), float("inf"), -1.0, 0.0:
            self.killed(scale=(24, struct.pack("<d", scale)))
            self.check_refused("length of a tick")
        self.killed()
        os.truncate(self.spool, 1 << 40)
        self.check_refused("1099511627776 bytes", "expected at most")

    def test_the_spool_of_a_process_that_was_killed_while_it_opened_its_log_just_goes(self):
        self.killed(bytes=(40, bytes(16)))
        os.truncate(self.spool, 4096 + 252 * 1024)
        self.assertEqual(self.run_program("recover", self.log).returncode, 0)
        self.assertFalse(self.spool.exists())

    def test_times_and_counts_that_cannot_be_are_bounded(self):
        record = 4096 + 252 * 1024 + 64
        self.killed(start=(record, b"\xff" * 16), written=(record - 48, b"\xff" * 8))
        self.assertEqual(self.run_program("recover", self.log).returncode, 0)
        for row in self.rows():
            self.assertLess(decimal.Decimal(row["Elapsed"]), 2**63)

    def test_a_spool_that_names_a_fifo_as_a_library_is_not_waited_for(self):
        fifo = self.folder / "library"
        os.mkfifo(fifo)
        line = f"0 ffffffffffffffff 0 {fifo}\n".encode()
        self.killed(size=(56, struct.pack("<Q", len(line))), line=(4096, line))
        done = self.run_program("recover", self.log)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{fifo}+0x", self.rows()[-1]["Location"])

    def test_the_process_id_can_be_part_of_the_name(self):
        self.run_program("fork", log=self.folder / "log-%p.csv")
        (name,) = os.listdir(self.folder)
        self.assertRegex(name, r"^log-[0-9]+\.csv$")

    def test_a_spool_that_is_none_is_refused_and_stays(self):
        self.log.write_text("")
        self.spool.write_text("something else")
        done = self.run_program("recover", self.log)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not left by an event log", done.stderr)
        self.assertEqual(self.spool.read_text(), "something else")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
