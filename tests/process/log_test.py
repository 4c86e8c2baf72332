#!/usr/bin/env python3
"""log_test.py PROGRAM: where EMM_LOG writes, and what it leaves alone."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.realpath(sys.argv[1])


class Log(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def environment(self, log, **variables):
        """An environment in which the program warns that its event log cannot be written."""
        return dict(os.environ, EMM_EVENT_LOG=str(self.folder / "nowhere/log.csv"),
                    EMM_LOG=f"warn:{log}", **variables)

    def run_program(self, log, **variables):
        done = subprocess.run([PROGRAM, "fork"], env=self.environment(log, **variables), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def check_standard_error(self, log, reason):
        said = self.run_program(log).stderr
        self.assertRegex(said, f"EMM_LOG: .*{reason}.*; standard error is used")
        self.assertIn("events are not recorded", said)

    def test_lines_are_appended_to_the_file_that_is_named(self):
        log = self.folder / "log.txt"
        for lines in 1, 2:
            self.assertEqual(self.run_program(log).stderr, "")
            self.assertEqual(len(log.read_text().splitlines()), lines)
        self.assertIn("events are not recorded", log.read_text())

    def test_the_process_id_can_be_part_of_the_name(self):
        self.run_program(self.folder / "log-%p.txt")
        (name,) = os.listdir(self.folder)
        self.assertRegex(name, r"^log-[0-9]+\.txt$")

    def test_no_folders_are_made(self):
        self.check_standard_error(self.folder / "new/log.txt", "new/log.txt: No such file")
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_fifo_is_not_waited_for(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        self.check_standard_error(fifo, "fifo is a FIFO; expected a regular file")
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.check_standard_error(fifo, "fifo is a FIFO; expected a regular file")

    def test_a_symbolic_link_is_not_followed(self):
        precious, link = self.folder / "precious", self.folder / "link"
        for content in None, "precious":
            if content:
                precious.write_text(content)
            link.symlink_to(precious)
            self.check_standard_error(link, "link is a symbolic link; expected a regular file")
            self.assertEqual(content, precious.read_text() if precious.exists() else None)
            link.unlink()

    @unittest.skipIf(os.geteuid() != 0, "needs a file of another user")
    def test_a_file_of_another_user_is_left_alone(self):
        theirs = self.folder / "theirs"
        theirs.write_text("theirs")
        os.chown(theirs, 65534, 65534)
        self.check_standard_error(theirs, "theirs belongs to another user, 65534; expected 0")
        self.assertEqual(theirs.read_text(), "theirs")

    def test_a_folder_is_refused(self):
        self.check_standard_error(self.folder, "Is a directory")

    def test_the_standard_streams_and_devices_can_be_named(self):
        self.assertIn("events are not recorded", self.run_program("/dev/stderr").stderr)
        done = self.run_program("/dev/stdout")
        self.assertEqual(done.stderr, "")
        self.assertIn("events are not recorded", done.stdout)
        self.assertEqual(self.run_program("/dev/null").stderr, "")
        self.assertEqual(self.run_program("/dev/full").stderr, "")  # its lines are lost

    def test_a_limit_on_the_size_of_files_ends_the_log_and_not_the_program(self):
        log = self.folder / "log.txt"
        self.assertEqual(self.run_program(log, EMM_TEST_FILE_LIMIT="20").stderr, "")
        self.assertEqual(log.stat().st_size, 20)

    def test_programs_that_are_started_do_not_have_it_open(self):
        log = self.folder / "log.txt"
        with subprocess.Popen([PROGRAM, "wait"], env=self.environment(log), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            descriptors = pathlib.Path(f"/proc/{process.pid}/fd")
            flags = [next(line for line in
                          (descriptors.parent / "fdinfo" / each).read_text().splitlines()
                          if line.startswith("flags:"))
                     for each in os.listdir(descriptors)
                     if os.readlink(descriptors / each) == str(log)]
            process.communicate(b"\n")
        self.assertEqual(len(flags), 1)
        self.assertTrue(int(flags[0].split()[1], 8) & os.O_CLOEXEC)


class Statistics(unittest.TestCase):
    def told(self, scenario, **variables):
        """The standard error of a program that ended in this way."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PROGRAM, scenario], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=60, check=False, cwd=folder,
                                  env={**os.environ, "EMM_LOG": "off", "EMM_EVENT_LOG": folder + "/log", **variables})
        return done.stderr

    def test_at_exit_there_is_one_table_with_a_row_for_each_context_whatever_the_logs_level(self):
        for scenario in ("each", "fork", "late"):  # retires its context; forks a child that exits; frees at exit
            lines = self.told(scenario, EMM_STATS="exit").splitlines()
            self.assertEqual(len([line for line in lines if "statistics of emm" in line]), 1, scenario)
            title = lines.index([line for line in lines if line.startswith("context ")][0])
            self.assertRegex(lines[title], "plugin .*allocations +frees +failures +live MiB +peak MiB +cached MiB +"
                                           "pending MiB +reserved MiB +pressure runs")
            self.assertRegex(lines[title + 1], r"^device 0, context \d+ +\S+( +[\d.]+| +-){8} +\d+$")

    def test_the_tables_of_several_processes_name_their_programs_and_ids(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("one", "other"):
                program = shutil.copy2(PROGRAM, f"{folder}/{name}")
                with subprocess.Popen([program, "late"], stderr=subprocess.PIPE, text=True, cwd=folder,
                                      env={**os.environ, "EMM_LOG": "off", "EMM_STATS": "exit"}) as process:
                    self.assertIn(f"statistics of emm, {name} (process {process.pid})\n", process.communicate()[1])

    def test_what_is_still_allocated_is_told_by_caller_where_allocations_are_tracked(self):
        said = self.told("leave", EMM_STATS="exit", EMM_TRACK="module")
        self.assertRegex(said, r"2\.93 KiB still allocated at the end:\n +2\.93 KiB .* 1 allocation +\S*event-log")
        self.assertNotIn("still allocated", self.told("late", EMM_STATS="exit", EMM_TRACK="module"))
        self.assertNotIn("still allocated", self.told("leave", EMM_STATS="exit"))

    def test_what_the_program_still_has_of_the_driver_itself_is_told_by_kind_and_caller(self):
        said = self.told("leave-own", EMM_STATS="exit", EMM_TRACK="module", EMM_LIMIT="64MiB")
        self.assertRegex(said, r"still taken from the driver itself at the end, device 0: physical memory 4\.00 MiB, "
                               r"arrays 2\.00 MiB\n +by library:\n +6\.00 MiB .* 2 allocations +\S*event-log")
        self.assertNotIn("driver itself", self.told("leave", EMM_STATS="exit", EMM_TRACK="module", EMM_LIMIT="64MiB"))

    def test_what_a_context_has_at_its_reset_and_its_end_is_told_by_caller(self):
        said = self.told("each", EMM_STATS="exit", EMM_TRACK="module")  # drops a block at the reset, one at the end
        for moment, size in ((r"was reset", 256), (r"ended", 128)):
            self.assertRegex(said, rf"{size} B still allocated when device 0, context \d+ {moment}:\n"
                                   rf" +{size} B .* 1 allocation +\S*event-log")
        self.assertNotIn("at the end", said)
        self.assertNotIn("still allocated", self.told("each", EMM_STATS="exit"))

    def test_nothing_is_told_unless_it_is_asked_for(self):
        self.assertNotIn("statistics", self.told("each"))
        self.assertIn("EMM_STATS: expected exit, found 'yes'", self.told("each", EMM_STATS="yes", EMM_LOG="warn"))

    def test_a_process_that_does_not_come_to_its_exit_tells_nothing(self):
        for scenario in ("_exit", "abort"):
            self.assertNotIn("statistics of emm", self.told(scenario, EMM_STATS="exit"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
