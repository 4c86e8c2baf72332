#!/usr/bin/env python3
"""How the emm tool behaves in a terminal and a pipe, whatever it is given: writes that fail, wrong usage, hostile
names, plugins that end their process."""
import fcntl
import json
import os
import pty
import struct
import subprocess
import tempfile
import termios
import unittest

from emm_program import EMM, answer, fixture, run

RMM_LOG = ("Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00:000001,allocate,0x1000,256,0x0\n"
           "1,10:00:00:000002,free,0x1000,256,0x0\n")
LOG = ("Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End,Elapsed,"
       "Location\nAlloc,0,0x1000,0,256,1000,2000,1,0.000000001,0.000000002,0.000000001,main\n")


def closed_pipe():
    """A pipe that no process reads."""
    ends = os.pipe()
    os.close(ends[0])
    return os.fdopen(ends[1], "w")


def written_to(output, *arguments, **more):
    """The finished process, whose standard output is that file."""
    return subprocess.run([EMM, *arguments], stdout=output, stderr=subprocess.PIPE, text=True, check=False,
                          timeout=120, **more)


class Files(unittest.TestCase):
    """A folder, with a file of each kind that the tool reads."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.trace = self.file("trace.csv", "time,thread,stream,op,id,size\n0,0,0,alloc,1,9\n1,0,0,free,1,9\n")
        self.log = self.file("log.csv", LOG)
        self.rmm = self.file("rmm.csv", RMM_LOG)

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class Writes(Files):
    def commands(self):
        return [["--help"], ["--version"], ["replay", "--help"], ["info"], ["info", "--json"],
                ["replay", self.trace], ["replay", self.trace, "--json"], ["events", self.log],
                ["events", self.log, "--json"], ["bench", "--case", "counter"], ["bench", "--case", "counter", "--json"],
                ["check", "--list"], ["check", "--list", "--json"], ["check", "passthrough", "--filter", "table/texts"],
                ["check", "passthrough", "--filter", "table/texts", "--json"], ["run", "--print-env"],
                ["export", self.log, "--to", "torch-snapshot"], ["export", self.log, "--to", "chrome-trace"],
                ["import", self.rmm]]

    def test_a_full_disk_is_status_1_and_one_sentence_for_every_command_that_writes(self):
        for command in self.commands():
            with self.subTest(command), open("/dev/full", "w", encoding="utf-8") as full:
                done = written_to(full, *command)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("emm: cannot write standard output: No space left on device\n", done.stderr)

    def test_a_pipe_that_no_process_reads_is_status_1_and_one_sentence(self):
        for command in self.commands():
            with self.subTest(command), closed_pipe() as pipe:
                done = written_to(pipe, *command)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("emm: cannot write standard output: Broken pipe\n", done.stderr)

    def test_a_standard_output_that_is_closed_is_told_and_is_no_file_that_was_opened_later(self):
        for command in (["info"], ["events", self.log], ["import", self.rmm, "-o", self.folder + "/out.csv"]):
            with self.subTest(command):
                done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", EMM, *command], capture_output=True, text=True,
                                      check=False, timeout=60)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("cannot write standard output", done.stderr)
        with open(self.folder + "/out.csv", encoding="utf-8") as trace:
            self.assertEqual(len(trace.read().splitlines()), 3)

    def test_a_file_that_grows_beyond_what_it_may_is_status_1_and_leaves_what_was_there(self):
        for command in (["export", self.log, "--to", "chrome-trace"], ["import", self.rmm]):
            with self.subTest(command):
                path = self.file("out", "as it was")
                done = subprocess.run(["prlimit", "--fsize=16", EMM, *command, "-o", path], capture_output=True,
                                      text=True, check=False, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (1, f"emm: cannot write {path}: File too large\n"))
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(file.read(), "as it was")
                full = run(*command, "-o", "/dev/full")
                self.assertEqual((full.returncode, full.stderr),
                                 (1, "emm: cannot write /dev/full: No space left on device\n"))

    def test_a_problem_that_standard_output_does_not_take_as_json_is_on_standard_error(self):
        with closed_pipe() as pipe:
            done = written_to(pipe, "check", "no-such-plugin", "--json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no-such-plugin", done.stderr)

    def test_a_program_that_runs_on_emm_is_ended_by_a_closed_pipe_as_ever(self):
        with closed_pipe() as pipe:
            done = written_to(pipe, "run", "--", "sh", "-c", "yes; echo status $? >&2")
        self.assertIn("status 141", done.stderr)  # 128 + SIGPIPE


class HostileNames(Files):
    """Escape codes, line ends, a C1 control, a change of direction, and what CSV and HTML take for their own."""
    TEXT = '\x1b[2J\x1b]0;title\x07\r\ngood 1.0\n\u009b31m\u202e",<b>'

    def assert_plain(self, text):
        for line in text.split("\n"):
            self.assertFalse(line.startswith("good 1.0"), text)
            self.assertTrue(all(c.isprintable() for c in line), ascii(text))

    def assert_told(self, status, *arguments, also=(), **variables):
        """Both to people and as JSON; the object."""
        done = run(*arguments, **variables)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assert_plain(done.stdout)
        self.assert_plain(done.stderr)
        for word in also:
            self.assertIn(word, done.stdout + done.stderr)
        done = run(*arguments, "--json", **variables)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assert_plain(done.stdout)
        self.assert_plain(done.stderr)
        return json.loads(done.stdout)

    def test_texts_of_a_plugin_are_shown_on_one_line_and_as_far_as_they_are_of_use(self):
        told = self.assert_told(0, "info", fixture("hostile"), also=["?[2J"])
        self.assertLess(len(json.dumps(told)), 20_000)
        self.assertEqual(told["plugin"]["name"], "stray")

    def test_a_plugin_whose_name_is_hostile_is_refused_in_one_line(self):
        self.assert_told(1, "info", fixture("hostile-name"), also=["its name is not valid"])

    def test_what_a_plugin_logs_and_says_of_its_failures_is_one_line(self):
        for command in (["replay", self.trace, "--plugin"], ["bench", "--case", "pair", "--plugin"],
                        ["check", "--filter", "table/lines"]):
            self.assert_told(1, *command, fixture("hostile"))

    def test_names_of_files_are_shown_on_one_line(self):
        trace = self.file(self.TEXT.replace("/", "") + ".csv", "time,thread,stream,op,id,size\n0,0,0,mark,1,0\n")
        log = self.file(self.TEXT.replace("/", "") + ".log", LOG)
        rmm = self.file(self.TEXT.replace("/", "") + ".rmm", RMM_LOG)
        empty = self.file(self.TEXT.replace("/", ""), "")
        self.assertEqual(self.assert_told(0, "replay", trace)["trace"], trace)
        self.assertEqual(self.assert_told(0, "events", log)["log"], log)
        self.assert_told(0, "import", rmm, "-o", trace)
        self.assert_told(0, "export", log, "--to", "chrome-trace", "-o", rmm)
        for command in (["replay", empty], ["events", empty], ["import", empty, "-o", trace], ["replay", empty + "."],
                        ["export", empty, "--to", "chrome-trace", "-o", trace]):
            self.assert_told(2, *command)
        self.assert_told(1, "import", self.rmm, "-o", self.folder + "/" + self.TEXT.replace("/", "") + "/x")

    def test_what_a_trace_has_in_its_cells_is_shown_on_one_line_and_short(self):
        cell = self.TEXT.replace("\n", "") + "x" * 1000
        for row in (f"0,0,0,{cell},1,9", f"0,0,0,alloc,{cell},9", cell):
            error = self.assert_told(2, "replay", self.file("bad.csv", f"time,thread,stream,op,id,size\n{row}\n"))
            self.assertLess(len(error["error"]["message"]), 400)
        for header in (cell, LOG.splitlines()[0] + f"\nAlloc,{cell},0,0,0,0,0,0,0,0,0,x"):
            self.assert_told(2, "events", self.file("bad.log", header + "\n"))

    def test_variables_are_shown_on_one_line(self):
        told = self.assert_told(0, "info", EMM_SIM=None, EMM_EVENT_LOG=self.TEXT)
        self.assertEqual(told["environment"]["EMM_EVENT_LOG"], self.TEXT)

    def test_a_specification_with_control_characters_is_refused_in_one_line(self):
        alone = self.TEXT.replace(";", "")
        self.assert_told(1, "info", self.TEXT)  # a list
        self.assert_told(1, "info", alone)
        self.assert_told(1, "info", "pool:max=" + alone)


class WrongUsage(Files):
    KEYS = ["code", "stage", "message", "path", "expected", "got", "tried", "hint"]

    def test_it_is_json_wherever_json_stands_in_the_line(self):
        for line in ("--json", "inof --json", "--json info", "info --json --frob", "info --frob --json", "info a b --json",
                     "replay --json", "replay --json --order lose x.csv", "bench --json --threads 0", "bench --case pear --json",
                     "events --json", "check --json", "check --json x --limit 0", "check pool --filter nonsense --json",
                     "run --json --frob -- sh", "run --json sh", "export --json", "export --json x --to y", "import --json",
                     "import --json x --from y", "import --json x"):
            with self.subTest(line):
                done = run(*line.split())
                self.assertEqual((done.returncode, done.stderr), (2, ""))
                told = json.loads(done.stdout)
                self.assertEqual(list(told), ["error"])
                self.assertEqual(list(told["error"]), self.KEYS)
                self.assertEqual(told["error"]["stage"], "usage")

    def test_json_behind_the_dashes_is_the_programs(self):
        done = run("run", "--frob", "--", "sh", "--json")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_slips_in_commands_options_cases_plugins_and_values_are_corrected(self):
        for line, meant in {"repaly x": "replay", "--versoin": "--version", "info --josn": "--json", "check --filer=x pool": "--filter",
                            "replay --generate trian": "train", "replay --order free_ x": "free",
                            "bench --case pair_bussy": "pair_busy", "bench --case counter,bare,pair --plugin poool": "pool",
                            "check pool --filter memory/leak2": "memory/leaks", "check pool --filter EMM-P-5": "EMM-P-05",
                            "info asinc": "async", "info pool:mx=1GiB": "max", "info pool:growth=vm": "vmm",
                            "run --plugni pool -- sh": "--plugin", "run --release pytorch -- sh": "torch",
                            "export x --to crome-trace": "chrome-trace", "import x --from kinetto": "kineto"}.items():
            with self.subTest(line):
                done = run(*line.split())
                self.assertIn(done.returncode, (1, 2))
                self.assertIn(f"did you mean '{meant}'?", done.stderr)


class Outputs(unittest.TestCase):
    def test_what_is_read_is_not_written_over(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log.csv")
            self.assertEqual(run("replay", "--generate", "train", EMM_EVENT_LOG=log, EMM_PLUGIN="pool").returncode, 0)
            with open(log, "rb") as file:
                before = file.read()
            link = os.path.join(folder, "link.csv")
            os.symlink(log, link)
            for line in (["export", log, "--to", "chrome-trace", "-o", link], ["report", log, "-o", log],
                         ["import", log, "--from", "rmm", "-o", log]):
                done = run(*line)
                self.assertEqual((done.returncode, done.stdout), (2, ""), line)
                self.assertIn("this is the file that is read", done.stderr)
            with open(log, "rb") as file:
                self.assertEqual(file.read(), before)

    def test_report_writes_no_page_with_json_unless_one_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log.csv")
            run("replay", "--generate", "train", EMM_EVENT_LOG=log, EMM_PLUGIN="pool")
            before = set(os.listdir())
            self.assertIsNone(answer("report", log, "--json")["file"])
            self.assertNotIn("report.html", set(os.listdir()) - before)


class DeadlyPlugins(unittest.TestCase):
    ENDS = {"leaves": "ended with status 7", "entry-leaves": "ended with status 7", "ends": "ended without an answer",
            "crashes": "ended by signal 11", "entry-crashes": "ended by signal 11", "waits": "silent for 0.5 s",
            "entry-waits": "silent for 0.5 s"}
    # Else a sanitizer's runtime makes a status of the signal.
    SIGNALS = {"ASAN_OPTIONS": "detect_leaks=0:handle_segv=0", "TSAN_OPTIONS": "handle_segv=0"}

    def path(self, name):
        return os.path.join(os.environ["EMM_TEST_DEADLY"], f"libemm-{name}.so")

    def test_what_ends_the_process_of_info_is_the_plugins_entry_and_the_rest_is_told(self):
        for name, end in self.ENDS.items():
            for how in ((["info", self.path(name)], {}), (["info"], {"EMM_PLUGIN": self.path(name)})):
                with self.subTest(name, how=how):
                    told = answer(*how[0], "--limit", "0.5", status=1, **how[1], **self.SIGNALS)
                    self.assertEqual(list(told), ["plugin", "plugins", "driver", "group", "environment", "invalid"])
                    self.assertEqual(list(told["plugin"]), ["error"])
                    self.assertIn(end, told["plugin"]["error"]["message"])
                    self.assertTrue(told["driver"]["simulated"])
        done = run("info", self.path("crashes"), **self.SIGNALS)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Aemm: .*ended by signal 11")
        self.assertIn("SIMULATED", done.stdout)

    def test_what_ends_the_process_of_info_may_be_the_driver_and_the_rest_is_told(self):
        for name in ("leaves", "crashes", "waits"):
            with self.subTest(name):
                told = answer("info", "passthrough", "--limit", "0.5", status=1, EMM_DRIVER=self.path(name), **self.SIGNALS)
                self.assertEqual(told["plugin"].get("name"), "passthrough", told)
                self.assertIn("passthrough", [plugin["name"] for plugin in told["plugins"]])
                message = told["driver"]["error"]["message"]
                self.assertRegex(message, f"the driver.*{self.ENDS[name]}")
                self.assertNotIn("passthrough", message)

    def test_the_time_limit_of_check_covers_the_process_that_asks_what_the_plugin_is(self):
        for name in ("waits", "entry-waits"):
            told = answer("check", self.path(name), "--limit", "0.5", status=1)
            self.assertIn("silent for 0.5 s", told["error"]["message"])


@unittest.skipUnless(os.geteuid() == 0, "only root can become another user, who has few processes")
class FewThreads(Files):
    """The user may have 30 threads in all."""

    def limited(self, *words):
        return subprocess.run(["prlimit", "--nproc=30", EMM, *words], user=65534, group=65534, extra_groups=[],
                              capture_output=True, text=True, check=False, timeout=120)

    def test_threads_that_cannot_be_started_are_one_sentence(self):
        rows = [f"{i},{i},0,mark,{i},0" for i in range(120)]
        os.chmod(self.folder, 0o755)
        trace = self.file("threads.csv", "\n".join(["time,thread,stream,op,id,size", *rows, ""]))
        for words in (["replay", trace], ["replay", trace, "--order", "free"],
                      ["bench", "--case", "pair", "--plugin", "passthrough", "--threads", "100"],
                      ["check", "passthrough", "--jobs", "120"]):
            with self.subTest(words):
                done = self.limited(*words)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stdout + done.stderr, r"cannot start thread \d+ of 1[02]0: Resource temporarily")


class Specs(Files):
    def test_check_refuses_a_list_of_plugins_in_a_sentence(self):
        for specs in ("pool;async", "/a.so;pool:max=1GiB", "pool;"):
            error = answer("check", specs, status=2)["error"]
            self.assertEqual(error["stage"], "usage")
            self.assertIn(f"expected one plugin, found a list, '{specs}'", error["message"])

    def test_relative_paths_are_taken_from_the_current_folder(self):
        os.symlink(fixture("every-option"), os.path.join(self.folder, "p%q=;.so"))
        for command in (["info"], ["check", "--filter", "table/texts"], ["replay", self.trace, "--plugin"],
                        ["bench", "--case", "pair", "--plugin"], ["run", "--print-env", "--plugin"]):
            for path in ("./p%25q%3D%3B.so", f"../{os.path.basename(self.folder)}/p%25q%3D%3B.so:max=1MiB"):
                with self.subTest(command, path=path):
                    done = subprocess.run([EMM, *command, path], cwd=self.folder, capture_output=True, text=True,
                                          check=False, timeout=60)
                    self.assertEqual((done.returncode, done.stderr if command[0] != "bench" else ""), (0, ""))
                    self.assertIn("every-option" if command[0] in ("info", "check") else self.folder + "/p%25q%3D%3B.so",
                                  done.stdout)


class Terminal(Files):
    def shown(self, columns, *arguments, stream="stdout", **variables):
        """The output for a terminal of so many columns, from standard output or standard error."""
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: end}
        process = subprocess.Popen([EMM, *arguments], env={**os.environ, "TERM": "xterm", **variables}, **streams)
        os.close(end)
        text = b""
        try:
            while part := os.read(terminal, 65536):
                text += part
        except OSError:  # the other end is closed
            pass
        os.close(terminal)
        process.wait(60)
        return text.decode().replace("\r\n", "\n")

    def test_a_table_is_as_wide_as_the_terminal_and_in_full_in_a_pipe(self):
        command = ["replay", self.trace, "--plugin", "passthrough", "--plugin", "pool"]
        piped = run(*command).stdout
        self.assertGreater(max(map(len, piped.splitlines())), 140)
        for columns in (40, 80, 100):
            text = self.shown(columns, *command)
            rows = [line for line in text.splitlines() if line.startswith(("plugin", "passthrough", "pool"))]
            self.assertGreater(len(rows), 3)
            self.assertEqual([row for row in rows if len(row) > columns], [])
            for title in ("events", "peak reserved", "driver calls", "p99.9"):
                self.assertIn(title, text)
        wide = self.shown(300, *command).splitlines()
        self.assertEqual(len(wide), len(piped.splitlines()))
        self.assertEqual(len([line for line in wide if line.startswith("plugin ")]), 1)

    def test_long_work_shows_progress_from_its_beginning_on_a_terminal_that_can(self):
        rows = "".join(f"{i},0,0,mark,{i},0\n" for i in range(300_000))
        long = self.file("long.csv", "time,thread,stream,op,id,size\n" + rows)
        for command, word in ((["replay", long], "reading"), (["check", "pool", "--filter", "table/texts"], "loading pool"),
                              (["info", "pool"], "loading pool"), (["check", "pool", "--filter", "table/", "--json"], "table/texts")):
            with self.subTest(command):
                text = self.shown(30, *command, stream="stderr")
                self.assertIn("\r\x1b[K" + word, text)
                self.assertTrue(text.endswith("\r\x1b[K"), text)
                self.assertLess(max(len(line) for line in text.replace("\x1b[K", "").split("\r")), 30)
                self.assertNotIn("\x1b", self.shown(30, *command, stream="stderr", TERM="dumb"))

    def test_there_is_no_colour(self):
        self.assertNotIn("\x1b", self.shown(80, "info", "pool"))


if __name__ == "__main__":
    unittest.main()
