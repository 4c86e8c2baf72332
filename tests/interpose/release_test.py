#!/usr/bin/env python3
"""release_test.py INTERPOSER DRIVER LIBEMM CLIENT CALLER TORCH: what `emm run --release` asks of a Python
program's caches, by the program release/program.py on the simulated driver. CALLER and TORCH are builds of
release/library.c, CLIENT is a program on the driver API without Python."""
import json
import os
import subprocess
import sys
import unittest

INTERPOSER, DRIVER, LIBEMM, CLIENT, CALLER, TORCH = sys.argv[1:7]
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "release/program.py")
EMM = os.environ["EMM_TEST_PROGRAM"]
BOTH = "release=torch+cupy"
OUT_OF_MEMORY, LIBRARY_FAILED = 2, 303  # CUresult
TIMEOUT = 120  # for a program that hangs


class Programs(unittest.TestCase):
    maxDiff = None

    @staticmethod
    def start(options, *words, **variables):
        folders = [os.path.dirname(INTERPOSER), os.path.dirname(LIBEMM)]
        environment = dict(os.environ, LD_PRELOAD=INTERPOSER, LD_LIBRARY_PATH=":".join(folders), EMM_PLUGIN="pool",
                           EMM_DRIVER=DRIVER, EMM_SIM="memory=1GiB", EMM_RUN=options)
        environment.update(variables)
        return subprocess.Popen(words, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    @staticmethod
    def start_case(case, options, library=CALLER):
        return Programs.start(options, sys.executable, PROGRAM, case, library)

    @staticmethod
    def end(process):
        try:
            output, errors = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


class Release(Programs):
    @classmethod
    def setUpClass(cls):
        """These wait for some seconds, so they do while the others run."""
        cls.started = {case: cls.start_case(case, BOTH) for case in ("held-by-a-waiting-thread", "ended-within-a-turn")}

    def program(self, case, options, library=CALLER):
        return self.end(self.started.pop(case, None) or self.start_case(case, options, library))

    def outcome(self, case, options=BOTH, library=CALLER):
        """The program's JSON, and the lines that it writes after that."""
        done = self.program(case, options, library)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        told, *rest = done.stdout.splitlines()
        return json.loads(told), rest

    def assert_asked(self, case, options=BOTH, library=CALLER, **expected):
        told, rest = self.outcome(case, options, library)
        self.assertEqual(told, {"result": 0, "torch": 0, "cupy": 0, "cupy_pinned": 0, **expected})
        self.assertEqual(rest, [])

    def test_an_allocation_that_fails_without_the_option_succeeds_with_it(self):
        for case, cache in (("torch", "torch"), ("torch-async", "torch"), ("cupy", "cupy")):
            with self.subTest(case=case):
                self.assert_asked(case, options="", result=OUT_OF_MEMORY)
                self.assert_asked(case, options=f"zero,release={cache}", **{cache: 1})

    def test_a_full_bound_asks_caches_as_a_full_device_does(self):
        for case in ("torch", "torch-async", "torch-physical"):
            for options, told in ((BOTH, {"result": 0, "torch": 1}), ("", {"result": OUT_OF_MEMORY, "torch": 0})):
                with self.subTest(case=case, options=options):
                    done = self.end(self.start(options, sys.executable, PROGRAM, case, CALLER, EMM_LIMIT="1GiB",
                                               EMM_SIM="memory=16GiB"))
                    self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
                    self.assertEqual(json.loads(done.stdout), {"cupy": 0, "cupy_pinned": 0, **told})

    def test_only_the_caches_that_are_named_are_asked(self):
        self.assert_asked("torch", options="release=cupy", result=OUT_OF_MEMORY)
        self.assert_asked("cupy", options="release=torch", result=OUT_OF_MEMORY)

    def test_pinned_memory_is_asked_of_the_cache_of_pinned_memory(self):
        self.assert_asked("pinned", result=OUT_OF_MEMORY, cupy_pinned=1)

    def test_what_the_device_does_not_have_is_asked_of_no_cache(self):
        self.assert_asked("too-large", result=OUT_OF_MEMORY)

    def test_a_module_that_is_not_imported_stays_so(self):
        self.assert_asked("not-imported", result=OUT_OF_MEMORY, imported=[])
        self.assert_asked("half-imported", result=OUT_OF_MEMORY)

    def test_a_cache_that_fails_keeps_no_other_from_being_asked(self):
        self.assert_asked("failing-cache", torch=1, cupy=1)

    def test_an_allocation_of_a_cache_asks_none(self):
        self.assert_asked("failing-in-cache", torch=1, within=OUT_OF_MEMORY)

    def test_the_library_that_the_call_comes_from_is_not_asked(self):
        self.assert_asked("from-library", torch=1, cupy=1)
        self.assert_asked("from-library", library=TORCH, cupy=1)

    def test_nothing_is_asked_in_a_capture(self):
        self.assert_asked("in-a-capture", torch=1, during=OUT_OF_MEMORY, asked_during=0)

    def test_a_caller_with_the_interpreters_lock_is_refused_at_once(self):
        self.assert_asked("torch-with-lock", result=OUT_OF_MEMORY)

    def test_a_thread_that_holds_the_lock_and_waits_for_the_caller_goes_on(self):
        self.assert_asked("held-by-a-waiting-thread", result=OUT_OF_MEMORY, torch=1, asked_late=0)

    def test_threads_that_run_out_at_once_are_all_served(self):
        told, _ = self.outcome("several-threads")
        self.assertEqual((told["result"], told["threads"]), (0, 8))

    def test_the_programs_own_callback_is_asked_before(self):
        self.assert_asked("after-a-callback", torch=1, asked_before=0)

    def test_a_resume_from_outside_without_memory_asks_no_cache(self):
        program = self.start(BOTH + ",pausable", sys.executable, PROGRAM, "asleep", CALLER, EMM_LIMIT="1GiB")
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")

        def ask(*words):
            done = subprocess.run([EMM, words[0], str(program.pid), *words[1:]], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=TIMEOUT, check=False)
            return done.returncode, done.stderr
        self.assertEqual(ask("pause"), (0, ""))
        self.assertEqual(ask("limit", "540MiB"), (0, ""))  # for one of the two
        status, error = ask("resume")
        self.assertEqual(status, 1)
        self.assertIn("out of device memory: the limit of device 0 has no room", error)
        self.assertEqual(ask("limit", "1GiB"), (0, ""))
        self.assertEqual(ask("resume"), (0, ""))
        done = self.end(program)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout), {"result": 0, "torch": 0, "cupy": 0, "cupy_pinned": 0})

    def test_nothing_is_asked_once_the_interpreter_ends(self):
        done = self.program("ended", BOTH)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{OUT_OF_MEMORY} at the end\n", ""))
        self.assert_asked("ending-after-a-turn", result=OUT_OF_MEMORY, torch=1)

    def test_the_interpreter_ends_after_a_cache_that_is_giving_back(self):
        told, rest = self.outcome("ended-within-a-turn")
        self.assertEqual((told["result"], rest), (OUT_OF_MEMORY, ["given back"]))

    def test_a_program_without_python_runs_as_without_the_option(self):
        plain, asking = (self.end(self.start(options, CLIENT, "dlsym", "alloc")) for options in ("", BOTH))
        self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", plain.stdout)
        self.assertEqual((asking.returncode, asking.stdout, asking.stderr), (0, plain.stdout, ""))


class Options(Programs):
    def test_an_option_that_is_none_is_refused_in_a_sentence(self):
        for options, found in (("zeros", "zeros"), ("zero,release=torch+tensorflow", "release=torch+tensorflow")):
            with self.subTest(options=options):
                done = self.end(self.start_case("torch", options))
                self.assertEqual((done.returncode, json.loads(done.stdout)["result"]), (0, LIBRARY_FAILED))
                self.assertEqual(done.stderr, "emm run: EMM_RUN: expected sync-free, zero, pausable, no-children and "
                                              "release=torch+cupy, separated by commas, found "
                                              f"'{found}'\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[7:], verbosity=2)
