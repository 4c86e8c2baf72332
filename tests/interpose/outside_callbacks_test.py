#!/usr/bin/env python3
"""outside_callbacks_test.py PROGRAM: emm pause and emm resume, beside code of the program that emm calls. This code waits
for calls of CUDA (own_code.cpp), which the pause holds."""
import select
import sys
import unittest

import outside_test
from outside_test import Sleeper


class Callbacks(outside_test.Asking):
    def test_a_pressure_callback_in_the_programs_own_resume_fails_the_pause_in_time_and_nothing_is_lost(self):
        sleeper = Sleeper(self, "alloc", "mapped")
        self.assertEqual(sleeper.tell("own-resume"), "own-resume")
        self.assertRegex(self.refused("pause", sleeper.pid, "--limit", "0.5"),
                         r"pool own is busy: a thread of the program .* has not ended")
        sleeper.wait_for_rounds()
        self.assertEqual(sleeper.tell("own-resumed"), "0")
        self.ask("pause", sleeper.pid)
        self.assert_sleeps(sleeper)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_finalizer_runs_only_after_the_resume(self):
        sleeper = Sleeper(self, "alloc", "mapped", options=("--pausable", "--limit", "512MiB"))
        sleeper.tell("own-finalizer")
        self.ask("pause", sleeper.pid)
        self.ask("limit", sleeper.pid, "256MiB")  # asks for idle memory
        self.assert_sleeps(sleeper)
        sleeper.tell("fault cuMemCreate@1+")
        self.refused("resume", sleeper.pid)
        self.refused("resume", sleeper.pid, "cuMemCreate")
        sleeper.tell("fault ")
        self.assertEqual(sleeper.tell("own-calls"), "0")
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)
        self.assertEqual((sleeper.tell("own-trim"), sleeper.tell("own-calls")), ("0", "1"))

    def test_a_log_callback_is_not_called_by_the_pause(self):
        sleeper = Sleeper(self, "alloc", "mapped")
        sleeper.tell("own-log")
        before = sleeper.tell("own-calls")
        self.ask("pause", sleeper.pid)
        self.assertEqual(sleeper.tell("own-calls"), before)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_log_callback_is_not_called_by_a_question_to_a_sleeping_program(self):
        sleeper = Sleeper(self, "alloc")
        sleeper.tell("own-log")
        self.ask("pause", sleeper.pid)
        before = sleeper.tell("own-calls")
        self.ask("set", sleeper.pid, "slack=0.2")
        self.assertEqual(sleeper.tell("own-calls"), before)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_finalizer_that_waits_in_a_retirement_does_not_stop_the_resume(self):
        sleeper = Sleeper(self, "alloc")
        sleeper.tell("own-finalizer")
        self.ask("pause", sleeper.pid)
        sleeper.process.stdin.write("own-retire\n")
        self.assertEqual(select.select([sleeper.process.stdout], [], [], 0.2)[0], [])
        self.ask("resume", sleeper.pid)
        self.assertEqual(sleeper.process.stdout.readline().strip(), "0")
        self.assert_awake(sleeper)

    def test_a_library_that_is_being_loaded_does_not_stop_the_resume(self):
        sleeper = Sleeper(self, "alloc")
        self.ask("pause", sleeper.pid)
        sleeper.process.stdin.write("own-load\n")
        self.assertEqual(select.select([sleeper.process.stdout], [], [], 0.2)[0], [])
        self.ask("resume", sleeper.pid)
        self.assertEqual(sleeper.process.stdout.readline().strip(), "own-load")
        self.assert_awake(sleeper)

    def test_a_library_that_is_being_loaded_does_not_stop_the_report_of_a_resume_without_memory(self):
        sleeper = Sleeper(self, "alloc", options=("--pausable", "--track", "module"))
        self.ask("pause", sleeper.pid)
        sleeper.tell("fault cuMemCreate@1+")
        sleeper.process.stdin.write("own-load\n")
        self.assertEqual(select.select([sleeper.process.stdout], [], [], 0.2)[0], [])
        self.assertIn("out of device memory", self.refused("resume", sleeper.pid))
        sleeper.process.kill()  # it has no memory to go on with
        sleeper.process.wait()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[1:], verbosity=2)
