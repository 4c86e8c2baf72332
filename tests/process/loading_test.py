#!/usr/bin/env python3
"""The effects of a library on the process that loads it, and the drivers that EMM_DRIVER may name."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from emm_program import answer, fixture, run

DEADLY = pathlib.Path(os.environ["EMM_TEST_DEADLY"])
SIMCUDA = os.environ["EMM_TEST_SIMCUDA"]
INTERPOSER = os.environ.get("EMM_TEST_INTERPOSER")
# A sanitizer's runtime ends such a process in its own way, or has to be loaded first.
SANITIZED = os.environ["EMM_TEST_SANITIZERS"] != "none"


def deadly(name):
    return str(DEADLY / f"libemm-{name}.so")


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Constructors(Folder):
    def test_one_that_throws_ends_the_process_with_a_sentence_that_names_plugin_and_stage(self):
        for name, words in (("throws", "threw an exception: no GPU of the right colour;"),
                            ("throws-int", "threw an exception that is not a std::exception;"),
                            ("throws-silent", "threw an exception: an exception whose what() is NULL;"),
                            ("leaves-thread", "ended its thread;")):
            if SANITIZED and name == "leaves-thread":
                continue
            with self.subTest(name):
                log = self.folder / name
                done = run("info", deadly(name), EMM_LOG=f"warn:{log}")
                self.assertIn(f"ended by signal {signal.SIGABRT:d}", done.stderr)
                sentence = (f"plugin {deadly(name)}: dlopen: a constructor in it, or in a library that it "
                            f"needs, {words}")
                self.assertIn(f"emm: {sentence}", done.stderr)
                self.assertIn(sentence, log.read_text())

    def test_one_in_a_list_is_named_and_the_next_is_not_tried(self):
        done = run("info", EMM_PLUGIN=f"{deadly('throws')};passthrough")
        self.assertIn(f"ended by signal {signal.SIGABRT:d}", done.stderr)
        self.assertIn(deadly("throws"), done.stderr)

    def test_one_of_a_driver_is_named_too(self):
        done = run("info", EMM_DRIVER=deadly("throws"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, rf"\ndriver .*ended by signal {signal.SIGABRT:d} .* inside the driver\n")
        self.assertIn(f"driver {deadly('throws')}: dlopen: a constructor in it", done.stderr)


class Log(Folder):
    def last_line(self, *arguments, **variables):
        log = self.folder / "log"
        done = run(*arguments, EMM_LOG=f"debug:{log}", **variables)
        return log.read_text().splitlines()[-1], done

    def test_at_debug_level_it_ends_with_what_was_being_loaded(self):
        line, done = self.last_line("replay", "--generate", "arrays", EMM_PLUGIN=deadly("leaves"))
        self.assertIn("ended with status 7", done.stderr)
        self.assertTrue(line.endswith(f"[debug] plugin {deadly('leaves')}: loading {deadly('leaves')}"), line)

    def test_at_debug_level_it_ends_with_the_entry_that_was_called(self):
        line, done = self.last_line("replay", "--generate", "arrays", EMM_PLUGIN=deadly("entry-leaves"))
        self.assertIn("ended with status 7", done.stderr)
        self.assertTrue(line.endswith(f"[debug] plugin {deadly('entry-leaves')}: calling its entry"), line)

    def test_at_debug_level_it_ends_with_the_create_that_was_called(self):
        line, _ = self.last_line("replay", "--generate", "arrays", EMM_PLUGIN=deadly("create-leaves"))
        self.assertIn("[debug] plugin deadly: calling create for ", line)

    def test_at_debug_level_it_ends_with_the_driver_that_was_being_loaded(self):
        line, done = self.last_line("info", EMM_DRIVER=deadly("leaves"))
        self.assertEqual(done.returncode, 1)
        self.assertTrue(line.endswith(f"[debug] driver {deadly('leaves')}: loading {deadly('leaves')}"), line)


class Driver(Folder):
    """EMM_DRIVER=/path is loaded by the rules for plugins."""

    def setUp(self):
        super().setUp()
        self.own = self.folder / "above" / "own"
        self.own.mkdir(parents=True)
        self.file = pathlib.Path(shutil.copy(SIMCUDA, self.own / "libcuda.so.1"))

    def driver(self, **variables):
        return answer("info", status=variables.pop("status", 0), EMM_DRIVER=self.file, **variables)["driver"]

    def test_the_users_own_is_taken(self):
        self.assertTrue(self.driver()["simulated"])

    def test_one_that_others_could_have_written_or_swapped_is_refused(self):
        for path, mode, problem in (
                (self.file, 0o666, "it is writable by everybody"),
                (self.own, 0o777, f"its folder {self.own} is writable by everybody"),
                (self.own, 0o1777, f"its folder {self.own} is writable by everybody"),
                (self.own.parent, 0o777, f"the folder {self.own.parent} above it is writable by everybody")):
            with self.subTest(path=path, mode=oct(mode)):
                before = path.stat().st_mode
                path.chmod(mode)
                told = self.driver(status=1)["error"]
                self.assertIn(f"{self.file}: {problem}: expected no write permission for others, "
                              f"found mode {mode:04o}", told["message"])
                self.assertIn(f"chmod o-w {path}", told["message"])
                self.assertTrue(self.driver(EMM_ALLOW_UNTRUSTED="1")["simulated"])
                path.chmod(before)

    def test_one_of_another_user_is_refused(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a file away")
        os.chown(self.file, 54321, 54321)
        self.assertIn("it belongs to another user", self.driver(status=1)["error"]["message"])

    def test_a_pipe_is_none_and_its_writer_is_not_waited_for(self):
        self.file.unlink()
        os.mkfifo(self.file)
        self.assertIn("it is not a regular file", self.driver(status=1)["error"]["message"])


@unittest.skipUnless(INTERPOSER and not SANITIZED, "needs the interposer, and programs without sanitizers")
class InterposedDriver(Driver):
    """The same with the interposer in front, as `emm run` has it: the first call of any entry loads the driver."""

    def init(self, driver, **variables):
        program = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EMM_")}
        return subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60, check=False,
                              env={**kept, "LD_PRELOAD": INTERPOSER, "LD_LIBRARY_PATH": os.path.dirname(INTERPOSER),
                                   "EMM_DRIVER": str(driver), **variables})

    def driver(self, **variables):
        status = variables.pop("status", 0)
        done = self.init(self.file, **variables)
        self.assertEqual((done.returncode, done.stdout), (0, "100\n" if status else "0\n"), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1 if status or "EMM_ALLOW_UNTRUSTED" in variables else 0, done.stderr)
        return {"simulated": True, "error": {"message": done.stderr}}

    def test_no_code_of_one_that_is_refused_has_run(self):
        shutil.copy(deadly("leaves"), self.file)
        self.assertEqual(self.init(self.file).returncode, 7)
        self.own.chmod(0o777)
        self.assertEqual(self.init(self.file).stdout, "100\n")

    def test_control_characters_of_the_environment_do_not_reach_the_terminal(self):
        for variables in ({"EMM_DRIVER": "a\x1b[31m\nb\x7f"}, {"EMM_RUN": "a\x1b[31m\nb\x7f"}):
            done = self.init(variables.get("EMM_DRIVER", self.file), **variables)
            self.assertIn("found 'a?[31m b?'", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class Namesakes(Folder):
    """The driver is who EMM_DRIVER says, whatever else is called libcuda.so.1."""

    def test_a_plugin_by_the_name_of_the_driver_is_refused(self):
        told = answer("info", status=1, EMM_PLUGIN=deadly("named-libcuda"))["plugin"]["error"]
        self.assertEqual(told["stage"], "elf")
        self.assertEqual(told["message"], f"plugin {deadly('named-libcuda')}: it has the SONAME of another library, "
                                          "libcuda.so.1; link it without -Wl,-soname,libcuda.so.1")

    def test_a_libcuda_that_a_plugin_brings_does_not_outrank_the_driver_that_is_named(self):
        for driver in ("sim", SIMCUDA):
            # Meson puts the simulated driver's folder there, in any place.
            info = answer("info", EMM_PLUGIN=deadly("brings-libcuda"), EMM_DRIVER=driver, LD_LIBRARY_PATH=None)
            self.assertEqual(info["plugin"]["name"], "brings-libcuda")
            self.assertTrue(info["driver"]["simulated"])

    @unittest.skipIf(SANITIZED, "a sanitizer's runtime has to come first in a program")
    def test_the_programs_own_outranks_it_and_the_warning_says_what_was_named(self):
        done = run("info", LD_PRELOAD=SIMCUDA, EMM_DRIVER="/nonexistent/libcuda.so")
        self.assertIn(f"EMM_DRIVER=/nonexistent/libcuda.so is ignored: the process has loaded {SIMCUDA} already",
                      done.stderr)
        other = shutil.copy(SIMCUDA, self.folder / "libcuda.so.1")
        done = run("info", LD_PRELOAD=other, EMM_DRIVER="sim")
        self.assertIn(f"EMM_DRIVER=sim is ignored: the process has loaded {other} already", done.stderr)

    @unittest.skipIf(SANITIZED or not INTERPOSER, "there is no interposer, or a sanitizer's runtime has to come first")
    def test_where_there_is_none_the_interposer_is_not_taken_for_it(self):
        system = {"EMM_DRIVER": None, "LD_LIBRARY_PATH": None}
        if "no CUDA driver" not in run("info", **system).stdout:
            self.skipTest("this system has a driver")
        done = run("info", LD_PRELOAD=INTERPOSER, **system)
        self.assertIn("no CUDA driver: the system has no libcuda.so.1 (EMM_DRIVER=sim chooses the simulated driver)",
                      done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
