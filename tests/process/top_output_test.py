#!/usr/bin/env python3
"""The output of `emm top`: printed, written for collectors, and on a terminal."""
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import unittest

import emm_program
from top_programs import MIB, TIMEOUT, Holder, Liar, environment, framed, shown, stats_of, top


class Output(unittest.TestCase):
    def test_a_pipe_gets_one_table_without_escape_codes(self):
        holder = Holder(self, "alloc=1")
        done = top(TERM="xterm-256color")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], "^ *PID  PROGRAM +PLUGIN +DEV +LIVE +CACHED +(WAITING +)?RESERVED +PEAK")
        self.assertEqual(len([line for line in lines if line.startswith(f"{holder.pid}  ")
                              or f" {holder.pid}  " in line]), 1)
        self.assertNotIn("\033", done.stdout)

    def test_requests_that_fail_for_good_are_counted_once_and_others_not(self):
        for plugin, steps, failures in (("fault:nth=1,times=1+pool", "alloc=1", 0), ("fault:nth=100,times=9+pool", "grow=200", 1),
                                        ("pool", "grow=200", 1), ("passthrough", "grow=200", 1)):
            holder = Holder(self, steps, plugin=plugin, EMM_STATS="exit", EMM_LOG="off", EMM_LIMIT="128MiB")
            self.assertEqual(stats_of(shown()[holder.pid])["failures"], failures, plugin)
            self.assertEqual(holder.end(), 0)
            title, row = holder.errors.splitlines()[-2:]
            told = dict(zip(title.replace(" MiB", "").replace("pressure runs", "runs").split(), row.split()[3:]))
            self.assertEqual((told["failures"], told["runs"]), (str(failures), "1"), plugin)

    def test_so_many_tables_come_as_were_counted(self):
        Holder(self, "alloc=1")
        done = top("--count", 3, "--interval", 0.05)
        self.assertEqual(len(re.findall("PROGRAM", done.stdout)), 3)

    def test_a_pipe_that_is_closed_ends_the_tool(self):
        Holder(self, "alloc=1")
        tool = subprocess.Popen([emm_program.EMM, "top", "--interval", "0.05"], env=environment(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        tool.stdout.readline()
        tool.stdout.close()
        self.assertEqual(tool.wait(timeout=TIMEOUT), 1)
        self.assertIn("cannot write standard output: Broken pipe", tool.stderr.read())
        tool.stderr.close()

    def test_prometheus_gets_every_process_in_its_format(self):
        holder = Holder(self, "alloc=2")
        text = top("--prometheus").stdout
        sample = re.compile(r'([a-z_]+)\{(?:[a-z_]+="(?:[^"\\]|\\[\\n"])*",?)+\} [0-9.e+]+')
        for line in text.splitlines():
            self.assertTrue(line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line), line)
        self.assertRegex(text, rf'(?m)^emm_live_bytes\{{pid="{holder.pid}",program="holder",.*'
                               rf'\}} {2 * MIB}$')

    def test_the_bytes_of_a_pause_are_those_of_all_pools_and_pools_that_are_left_out_are_counted(self):
        told = (b'{"pause_problem":"","pause_ns":5,"pause_bytes":10485760,"pause_pools":'
                b'[{"device":0,"bytes":4194304,"stays":""}],"pause_pools_left_out":2}')
        with Liar(lambda client: client.send(framed(told))) as liar:
            self.assertRegex(emm_program.run("pause", liar.pid).stdout,
                             r"^10\.0 MiB went back.*\n  device 0: 4\.0 MiB\n  and 2 more pools\n$")
            found = emm_program.answer("resume", liar.pid)
            self.assertEqual((found["bytes"], found["pools_left_out"]), (10 * MIB, 2))

    def test_wrong_usage_is_said(self):
        for words in (("--sort", "colour"), ("--output", "x"), ("--prometheus", "--interval", "1"),
                      ("--interval", "0"), ("--dump", "0"), ("--json", "--prometheus"), ("x",)):
            self.assertEqual(top(*words).returncode, 2, words)


class Metrics(unittest.TestCase):
    """For collectors that read a file, such as node_exporter's."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "emm.prom")

    def test_a_file_gets_the_metrics_once_and_nothing_else_is_left_beside_it(self):
        holder = Holder(self, "alloc=1")
        self.file.write_text("of yesterday")
        done = top("--prometheus", "-o", self.file)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertIn(f'pid="{holder.pid}"', self.file.read_text())
        self.assertEqual(os.listdir(self.file.parent), ["emm.prom"])

    def test_with_an_interval_the_file_is_replaced_again_and_again_and_always_whole(self):
        tool = subprocess.Popen([emm_program.EMM, "top", "--prometheus", "-o", self.file,
                                 "--interval", "0.05"], env=environment())
        self.addCleanup(tool.wait)
        self.addCleanup(tool.kill)
        seen = set()
        while len(seen) < 3:
            self.assertIsNone(tool.poll())
            if self.file.exists():
                with self.file.open() as file:
                    self.assertRegex(file.read(), "# TYPE emm_device_bytes gauge\n"
                                                  "(emm_device_bytes{.*\n)*$")
                    seen.add(os.fstat(file.fileno()).st_mtime_ns)

    def test_a_folder_that_is_not_there_is_said_to_be_missing(self):
        done = top("--prometheus", "-o", self.file.parent / "none" / "emm.prom")
        self.assertEqual(done.returncode, 1)
        self.assertIn("emm.prom: No such file or directory", done.stderr)


class Terminal(unittest.TestCase):
    ENTER, LEAVE = b"\033[?1049h", b"\033[?1049l"

    def start(self, *words, size=(24, 80), **variables):
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.execvpe(emm_program.EMM, [emm_program.EMM, "top", *words],
                       environment(**{"TERM": "xterm", **variables}))
        self.addCleanup(os.close, self.end)
        self.resize(*size)
        self.seen = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def read(self):
        """False: the tool has ended."""
        if not select.select([self.end], [], [], TIMEOUT)[0]:
            raise AssertionError(self.seen)
        try:
            got = os.read(self.end, 65536)
        except OSError:
            return False
        self.seen += got
        return bool(got)

    def read_until(self, wanted):
        while wanted not in self.seen:
            self.assertTrue(self.read(), self.seen)

    def last_page_fits(self, rows, columns):
        whole = self.seen[:self.seen.rfind(b"\033[J")].split(b"\033[H")[-1].decode()
        lines = re.sub("\033\\[[0-9]*[A-Za-z]", "", whole).splitlines()
        return 2 < len(lines) <= rows and max(map(len, lines)) <= columns

    def finish(self):
        while self.read():
            pass
        return os.waitpid(self.pid, 0)[1]

    def test_the_screen_is_refreshed_and_put_back_when_q_is_pressed(self):
        holder = Holder(self, "alloc=1")
        self.start("--interval", "0.05")
        self.read_until(f"{holder.pid}".encode())
        self.seen = self.seen[self.seen.rindex(b"PROGRAM"):]
        self.read_until(b"PROGRAM")
        os.write(self.end, b"q")
        self.assertEqual(self.finish(), 0)
        self.assertIn(self.LEAVE, self.seen)

    def test_the_screen_is_put_back_when_a_signal_ends_it(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.start()
            self.read_until(b"emm top")
            os.kill(self.pid, number)
            self.assertTrue(os.WIFSIGNALED(self.finish()))
            self.assertLess(self.seen.index(self.ENTER), self.seen.rindex(self.LEAVE))

    def test_a_new_size_is_followed_at_once_and_no_line_is_wider(self):
        Holder(self, "alloc=1")
        self.start("--interval", "60", size=(24, 120))
        self.read_until(b"RESERVED")
        self.resize(10, 30)
        while not self.last_page_fits(10, 30):  # those before may have the size before
            self.assertTrue(self.read(), self.seen)
        os.write(self.end, b"q")
        self.finish()

    def test_s_sorts_by_the_next_column(self):
        self.start("--interval", "60", "--sort", "pid")
        self.read_until(b"by pid;")
        os.write(self.end, b"s")
        self.read_until(b"by program;")
        os.write(self.end, b"q")
        self.assertEqual(self.finish(), 0)

    def test_without_colours_there_is_no_style(self):
        Holder(self, "alloc=1")
        self.start("--count", "2", "--interval", "0.05", NO_COLOR="1")
        self.assertEqual(self.finish(), 0)
        self.assertNotRegex(self.seen, rb"\x1b\[[0-9;]*m")
        self.start("--count", "2", "--interval", "0.05")
        self.finish()
        self.assertRegex(self.seen, rb"\x1b\[1m")

    def test_a_terminal_that_knows_no_escape_codes_gets_one_table(self):
        Holder(self, "alloc=1")
        self.start(TERM="dumb")
        self.assertEqual(self.finish(), 0)
        self.assertIn(b"PROGRAM", self.seen)
        self.assertNotIn(b"\033", self.seen)


if __name__ == "__main__":
    unittest.main()
