#!/usr/bin/env python3
"""What `emm top` prints, serves, and does with a terminal."""
import fcntl
import http.client
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import unittest

import emm_program
from top_programs import MIB, TIMEOUT, Holder, environment, top


class Output(unittest.TestCase):
    def test_a_pipe_gets_one_table_without_escape_codes(self):
        holder = Holder(self, "alloc=1")
        done = top(TERM="xterm-256color")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], "^ *PID  PROGRAM +PLUGIN +DEV +LIVE +CACHED +RESERVED +PEAK")
        self.assertEqual(len([line for line in lines if line.startswith(f"{holder.pid}  ")
                              or f" {holder.pid}  " in line]), 1)
        self.assertNotIn("\033", done.stdout)

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
        self.assertIn("standard output cannot be written: Broken pipe", tool.stderr.read())
        tool.stderr.close()

    def test_prometheus_gets_every_process_in_its_format(self):
        holder = Holder(self, "alloc=2")
        text = top("--prometheus").stdout
        sample = re.compile(r'([a-z_]+)\{(?:[a-z_]+="(?:[^"\\]|\\[\\n"])*",?)+\} [0-9.e+]+')
        for line in text.splitlines():
            self.assertTrue(line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line), line)
        self.assertRegex(text, rf'(?m)^emm_live_bytes\{{pid="{holder.pid}",program="holder",.*'
                               rf'\}} {2 * MIB}$')

    def test_wrong_usage_is_said(self):
        for words in (("--sort", "colour"), ("--serve", "x"), ("--interval", "0"), ("--dump", "0"),
                      ("--json", "--prometheus"), ("x",)):
            self.assertEqual(top(*words).returncode, 2, words)


class Served(unittest.TestCase):
    def setUp(self):
        self.tool = subprocess.Popen([emm_program.EMM, "top", "--serve", ":0"], env=environment(),
                                     stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.tool.stdout.close)
        self.addCleanup(self.tool.wait)
        self.addCleanup(self.tool.kill)
        address = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics\n", self.tool.stdout.readline())
        self.port = int(address.group(1))

    def ask(self, method="GET", path="/metrics"):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        client.request(method, path)
        answer = client.getresponse()
        text = answer.read().decode()
        client.close()
        return answer, text

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def test_metrics_are_served_and_nothing_else_is(self):
        holder = Holder(self, "alloc=1")
        answer, text = self.ask()
        self.assertEqual((answer.status, answer.getheader("Content-Type")),
                         (200, "text/plain; version=0.0.4; charset=utf-8"))
        self.assertIn(f'pid="{holder.pid}"', text)
        self.assertEqual(self.ask("HEAD")[1], "")
        self.assertEqual(self.ask(path="/")[0].status, 404)
        self.assertEqual(self.ask("POST")[0].status, 405)

    def test_clients_that_are_slow_rude_or_many_keep_no_other_from_its_answer(self):
        clients = []
        for index in range(200):
            client = self.connect()
            clients.append(client)
            rude = [b"", b"GET", b"\0" * 100, b"GET /metrics HTTP/1.1\r\n", b"\r\n\r\n",
                    b"A" * 9000, b"GET /metrics HTTP/1.1\r\n\r\n"][index % 7]
            try:
                client.sendall(rude)
            except OSError:
                pass  # it has hung up
        self.assertEqual(self.ask()[0].status, 200)
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        self.assertEqual(self.ask()[0].status, 200)
        self.assertIsNone(self.tool.poll())

    def test_a_client_that_sends_nothing_is_hung_up_on(self):
        with self.connect() as silent:
            self.assertEqual(silent.recv(100), b"")

    def test_a_request_that_is_too_long_is_refused(self):
        with self.connect() as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 8200)
            self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 431 "))

    def test_an_address_that_is_taken_is_said_to_be(self):
        done = top("--serve", f"127.0.0.1:{self.port}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Address already in use", done.stderr)


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
