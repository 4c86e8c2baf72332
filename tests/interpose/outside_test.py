#!/usr/bin/env python3
"""outside_test.py PROGRAM: a program that is paused and resumed from outside, by emm pause and emm resume."""
import contextlib
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time
import unittest

PROGRAM = sys.argv.pop(1)
EMM = os.environ["EMM_TEST_PROGRAM"]
SIM = "memory=1GiB,devices=2"
IS_SIMULATED = bool(os.environ.get("EMM_DRIVER"))
MIB = 1 << 20
TIMEOUT = 60


def emm(*words):
    return subprocess.run([EMM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=TIMEOUT, check=False)


class Sleeper:
    """The program on emm."""

    def __init__(self, test, *kinds, options=("--pausable",), plugin="pool", progress="eager", sim=SIM):
        self.process = subprocess.Popen([EMM, "run", *options, "--plugin", plugin, "--", PROGRAM, *kinds], text=True,
                                        env={**os.environ, "EMM_SIM": sim + ",progress=" + progress}, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, bufsize=1)
        self.pid = self.process.pid
        test.addCleanup(self.end)
        self.wait_for_rounds()

    def end(self):
        """Ends the program, even asleep, by closing its input. A killed program would lose its coverage counts."""
        ended_before = self.process.poll() is not None
        try:
            self.process.send_signal(signal.SIGCONT)
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            status = self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        if not ended_before and status != 0:
            raise AssertionError(f"the program ended with status {status}")

    def tell(self, word):
        try:
            self.process.stdin.write(word + "\n")
        except BrokenPipeError:
            raise AssertionError("the program ended: " + self.process.stdout.read()) from None
        return self.process.stdout.readline().strip()

    def rounds(self):
        """The count of each of its threads."""
        return [int(number) for number in self.tell("count").split()[1:]]

    def wrong(self):
        return int(self.tell("count").split()[0])

    def wait_for_rounds(self):
        """Until each of its threads has made some more."""
        before, until = self.rounds(), time.monotonic() + TIMEOUT
        while any(now < some + 5 for now, some in zip(self.rounds(), before)):
            if time.monotonic() > until:
                raise AssertionError("its threads do not go on")
            time.sleep(0.01)

    def reserved(self):
        return sum(context["stats"]["reserved_bytes"] for context in self.figures()["contexts"])

    def figures(self):
        """Once its plugin has answered."""
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            found = json.loads(emm("top", "--json").stdout)
            figures = next(each for each in found["processes"] if each["pid"] == self.pid)
            if not figures["problem"] and all(context["stats"] for context in figures["contexts"]):
                return figures
        raise AssertionError(f"no figures: {figures}")


# Calls that only the pausing thread makes.
CALLS = ("cuCtxRecordEvent", "cuEventCreate", "cuEventQuery", "cuMemAddressFree", "cuMemAddressReserve",
         "cuMemCreate", "cuMemGetAccess", "cuMemHostAlloc", "cuMemMap", "cuMemRelease", "cuMemSetAccess", "cuMemUnmap",
         "cuMemcpyHtoDAsync", "cuStreamCreate")


class Asking(unittest.TestCase):
    def ask(self, *words):
        done = emm(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, *words):
        done = emm(*words)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        return done.stderr

    def assert_sleeps(self, sleeper):
        time.sleep(0.05)
        before = sleeper.rounds()
        time.sleep(0.2)
        self.assertEqual(sleeper.rounds(), before)
        self.assertTrue(sleeper.figures()["held"])

    def assert_awake(self, sleeper, wrong=0):
        sleeper.wait_for_rounds()
        self.assertFalse(sleeper.figures()["held"])
        self.assertEqual(sleeper.wrong(), wrong)


class Outside(Asking):
    def test_memory_goes_back_and_comes_again_with_what_was_in_it(self):
        sleeper = Sleeper(self, "alloc", "async", "pool")
        reserved = sleeper.reserved()
        paused = self.ask("pause", sleeper.pid)
        self.assertGreaterEqual(paused["bytes"], 0.97 * reserved)
        self.assertEqual(paused["bytes"], sum(pool["bytes"] for pool in paused["pools"]))
        self.assert_sleeps(sleeper)
        self.assertLessEqual(sleeper.reserved(), 0.03 * reserved)
        self.assertIn(" paused", emm("top").stdout)
        resumed = self.ask("resume", sleeper.pid)
        self.assertGreater(resumed["bytes"], 3 * 4 * MIB - 1)
        self.assert_awake(sleeper)

    def test_what_is_freed_asleep_does_not_come_back(self):
        sleeper = Sleeper(self, "mapped")
        sleeper.tell("allocate")
        paused = self.ask("pause", sleeper.pid)["pools"][0]["bytes"]
        self.assertGreaterEqual(paused, 4 * MIB)
        sleeper.tell("free")
        self.assertLessEqual(self.ask("resume", sleeper.pid)["pools"][0]["bytes"], paused - 4 * MIB)
        self.assert_awake(sleeper)

    def test_memory_of_cuMemCreate_sleeps_too(self):
        sleeper = Sleeper(self, "mapped")
        self.assertEqual(self.ask("pause", sleeper.pid)["pools"][-1],
                         {"device": 0, "context": 0, "pool": "cuMemCreate", "bytes": 4 * MIB, "stays": None})
        self.assert_sleeps(sleeper)
        self.assertEqual(self.ask("pause", sleeper.pid)["bytes"], 0)
        self.assertEqual(self.ask("resume", sleeper.pid)["bytes"], 4 * MIB)
        self.assert_awake(sleeper)

    @unittest.skipUnless(IS_SIMULATED, "it takes a second device")
    def test_memory_of_a_device_without_a_context_sleeps_with_what_was_in_it(self):
        sleeper = Sleeper(self, "peer")
        paused = self.ask("pause", sleeper.pid)["pools"][-1]
        self.assertEqual((paused["device"], paused["bytes"]), (1, 4 * MIB))
        self.assert_sleeps(sleeper)
        self.assertEqual(self.ask("resume", sleeper.pid)["bytes"], 4 * MIB)
        self.assert_awake(sleeper)

    @unittest.skipUnless(IS_SIMULATED, "it takes a second device")
    def test_memory_that_no_context_reaches_sleeps(self):
        sleeper = Sleeper(self, "mapped", sim=SIM + ",peer=0")
        sleeper.tell("unreached")
        paused = [pool for pool in self.ask("pause", sleeper.pid)["pools"] if pool["pool"] == "cuMemCreate"]
        self.assertEqual([(pool["device"], pool["bytes"]) for pool in paused], [(0, 4 * MIB), (1, 4 * MIB)])
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    @unittest.skipUnless(IS_SIMULATED, "a real driver does not fail by wish")
    def test_what_a_resume_could_not_bring_back_sleeps_on_and_may_be_paused_again(self):
        for unreached in (False, True):  # memory that is mapped, and a handle alone
            with self.subTest(unreached=unreached):
                sleeper = Sleeper(self, "alloc" if unreached else "mapped", sim=SIM + ",peer=0")
                sleeper.tell("unreached" if unreached else "count")
                self.ask("pause", sleeper.pid)
                sleeper.tell("fault cuMemAddressReserve@1+")
                self.assertIn("cuMemAddressReserve failed", self.refused("resume", sleeper.pid))
                sleeper.tell("fault ")
                self.assert_sleeps(sleeper)
                self.ask("pause", sleeper.pid)
                self.ask("resume", sleeper.pid)
                self.assert_awake(sleeper)

    @unittest.skipUnless(IS_SIMULATED, "a real driver does not fail by wish")
    def test_each_call_of_the_driver_may_fail_and_nothing_is_lost(self):
        sleeper = Sleeper(self, "mapped")
        refusals = 0
        for fault in (f"{call}@{number}{rest}" for call in CALLS for number, rest in ((1, ""), (1, "+"), (2, ""), (4, ""))):
            with self.subTest(fault=fault):
                for words in (("pause",), ("resume",)):
                    sleeper.tell("fault " + fault)
                    done = emm(words[0], sleeper.pid)
                    sleeper.tell("fault ")
                    refusals += done.returncode
                    self.assertIn(done.returncode, (0, 1), done.stderr)
                    if words == ("pause",) and done.returncode != 0 and not sleeper.figures()["held"]:
                        break
                self.ask("resume", sleeper.pid)
                self.assert_awake(sleeper)
        self.assertGreater(refusals, len(CALLS))

    def test_memory_that_is_exported_stays_and_is_named(self):
        sleeper = Sleeper(self, "mapped")
        self.assertEqual(sleeper.tell("export"), "export")
        paused = self.ask("pause", sleeper.pid)["pools"][0]
        self.assertEqual((paused["bytes"], paused["stays"]),
                         (2 * MIB, f"{2 * MIB} bytes stay: exported by cuMemExportToShareableHandle"))
        self.assert_sleeps(sleeper)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_block_that_is_exported_stays_and_is_named(self):
        sleeper = Sleeper(self, "alloc")
        self.assertEqual(sleeper.tell("ipc"), "ipc")
        paused = self.ask("pause", sleeper.pid)["pools"][0]
        self.assertGreaterEqual(paused["bytes"], 4 * MIB)
        self.assertRegex(paused["stays"], r"^\d+ bytes stay: exported, or cannot be returned$")
        self.assertGreaterEqual(sleeper.reserved(), 4 * MIB)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_block_that_a_network_card_uses_stays_and_is_named(self):
        sleeper = Sleeper(self, "alloc")
        self.assertEqual(sleeper.tell("range"), "range")
        paused = self.ask("pause", sleeper.pid)["pools"][0]
        self.assertRegex(paused["stays"] or "", r"^\d+ bytes stay: exported, or cannot be returned$")
        self.assertGreaterEqual(sleeper.reserved(), 4 * MIB)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)
        sleeper.tell("free-range")  # its descriptor stays open
        self.assertIsNone(self.ask("pause", sleeper.pid)["pools"][0]["stays"])
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    @unittest.skipUnless(IS_SIMULATED, "a device may have no multicast objects")
    def test_what_is_bound_to_a_multicast_object_stays_and_is_named(self):
        sleeper = Sleeper(self, "mapped")
        if int(sleeper.tell("headers")) < 12010:
            self.skipTest("the headers of CUDA know no multicast objects")
        self.assertEqual((sleeper.tell("bind"), sleeper.tell("bind-address")), ("bind", "bind-address"))
        paused = self.ask("pause", sleeper.pid)["pools"]
        self.assertEqual((paused[-1]["bytes"], paused[-1]["stays"]),
                         (2 * MIB, f"{2 * MIB} bytes stay: bound to a multicast object"))
        self.assertRegex(paused[0]["stays"] or "", r"^\d+ bytes stay: exported, or cannot be returned$")
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_pool_whose_export_cannot_stay_is_not_paused_until_it_is_freed(self):
        sleeper = Sleeper(self, "alloc")
        self.assertEqual(sleeper.tell("range-of-pool"), "range-of-pool")
        self.assertIn(f"{4 * MIB} bytes of cuMemPoolCreate#1 cannot be paused: they are exported by "
                      "cuMemGetHandleForAddressRange; nothing has changed", self.refused("pause", sleeper.pid))
        self.assert_awake(sleeper)
        sleeper.tell("free-range")
        self.ask("pause", sleeper.pid)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_an_export_that_the_driver_refuses_lets_the_memory_sleep(self):
        sleeper = Sleeper(self, "mapped")
        self.assertEqual(sleeper.tell("fail-export"), "fail-export")
        self.assertEqual(self.ask("pause", sleeper.pid)["pools"][-1]["bytes"], 4 * MIB)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_what_waits_for_an_event_or_looks_at_an_address_is_held(self):
        for word in ("wait", "instantiate"):
            with self.subTest(word=word):
                sleeper = Sleeper(self, "mapped")
                self.ask("pause", sleeper.pid)
                sleeper.process.stdin.write(word + "\n")
                self.assertEqual(select.select([sleeper.process.stdout], [], [], 0.2)[0], [])
                self.ask("resume", sleeper.pid)
                self.assertEqual(sleeper.process.stdout.readline().strip(), word)
                self.assert_awake(sleeper)

    def test_a_program_that_uses_emm_itself_sleeps_until_the_operators_resume(self):
        for word in ("emm-resume", "emm-alloc"):
            with self.subTest(word=word):
                sleeper = Sleeper(self, "alloc")
                self.assertEqual(sleeper.tell(word), "0")
                self.ask("pause", sleeper.pid)
                sleeper.process.stdin.write(word + "\n")
                self.assertEqual(select.select([sleeper.process.stdout], [], [], 0.2)[0], [])
                self.assertEqual(sleeper.reserved(), 0)
                self.ask("resume", sleeper.pid)
                self.assertEqual(sleeper.process.stdout.readline().strip(), "0")
                self.assert_awake(sleeper)

    @unittest.skipUnless(IS_SIMULATED, "its latency makes it likely")
    def test_a_plugin_that_calls_the_driver_by_name_with_its_lock_is_not_held(self):
        self.addCleanup(os.environ.pop, "EMM_TEST_FAULT")
        for way in ("calls-by-name", "calls-through-library"):
            with self.subTest(way=way):
                os.environ["EMM_TEST_FAULT"] = way
                sleeper = Sleeper(self, plugin=os.environ["EMM_TEST_PAUSING_PLUGIN"],
                                  sim=SIM + ",latency=cuMemGetAddressRange:3000")
                sleeper.tell("emm-loop")
                for _ in range(5):
                    self.ask("pause", sleeper.pid)
                    self.ask("resume", sleeper.pid)
                self.assertEqual(sleeper.tell("count"), "0")

    def test_handles_of_what_has_slept_are_good(self):
        sleeper = Sleeper(self, "mapped")
        self.ask("pause", sleeper.pid)
        self.ask("resume", sleeper.pid)
        self.assertEqual(sleeper.tell("handles"), "handles")
        self.assert_awake(sleeper)

    def test_a_second_pause_and_a_second_resume_change_nothing(self):
        sleeper = Sleeper(self, "alloc")
        self.assertGreater(self.ask("pause", sleeper.pid)["bytes"], 4 * MIB - 1)
        self.assertEqual(self.ask("pause", sleeper.pid)["bytes"], 0)
        self.assert_sleeps(sleeper)
        self.assertGreater(self.ask("resume", sleeper.pid)["bytes"], 4 * MIB - 1)
        again = self.ask("resume", sleeper.pid)
        self.assertEqual((again["bytes"], again["pools"]), (0, []))
        self.assert_awake(sleeper)

    def test_the_memory_of_the_copy_stays_for_the_next_pause_if_a_resume_asks_for_that(self):
        sleeper = Sleeper(self, "alloc")

        def held_by_copy(*options):
            self.ask("pause", sleeper.pid)
            self.ask("resume", sleeper.pid, *options)
            self.assert_awake(sleeper)
            return sum(context["stats"]["host_reserved_bytes"] for context in sleeper.figures()["contexts"])

        self.assertEqual(held_by_copy(), 0)
        self.assertGreaterEqual(held_by_copy("--keep-copy"), 4 * MIB)
        self.assertGreaterEqual(held_by_copy("--keep-copy"), 4 * MIB)
        self.assertEqual(held_by_copy(), 0)

    def test_discarded_memory_is_there_again(self):
        sleeper = Sleeper(self, "alloc")
        self.ask("pause", sleeper.pid, "--discard")
        self.assert_sleeps(sleeper)
        self.ask("resume", sleeper.pid)
        sleeper.wait_for_rounds()

    @unittest.skipUnless(IS_SIMULATED, "a real driver does not fail by wish")
    def test_a_failed_pause_says_what_content_it_has_lost(self):
        sleeper = Sleeper(self, "alloc", "mapped")
        sleeper.tell("fault cuMemGetAccess@1+")
        self.assertNotIn("lost", self.refused("pause", sleeper.pid))
        self.assert_awake(sleeper)
        lost = re.search(r"; the content of (\d+) bytes is lost$", self.refused("pause", sleeper.pid, "--discard").strip())
        sleeper.tell("fault ")
        self.assertGreaterEqual(int(lost[1]), 4 * MIB)
        sleeper.wait_for_rounds()

    @unittest.skipUnless(IS_SIMULATED, "a real driver does not fail by wish")
    def test_a_failed_pause_that_cannot_be_undone_says_what_goes_on_sleeping(self):
        sleeper = Sleeper(self, "alloc", "mapped")
        sleeper.tell("fault cuMemGetAccess@1+")
        sleeper.tell("fault cuMemCreate@1+")
        self.assertRegex(self.refused("pause", sleeper.pid), r"; \d+ bytes stay asleep: out of device memory")
        sleeper.tell("fault ")
        self.assert_sleeps(sleeper)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_memory_of_cuMemCreate_is_paused_by_its_name(self):
        sleeper = Sleeper(self, "alloc", "mapped")
        self.assertIn("'weights': it has cuMemCreate", self.refused("pause", sleeper.pid, "weights"))
        self.assertEqual(self.ask("pause", sleeper.pid, "cuMemCreate")["bytes"], 4 * MIB)
        self.assert_sleeps(sleeper)
        self.assertIn("'weights': it has cuMemCreate", self.refused("resume", sleeper.pid, "weights"))
        self.assert_sleeps(sleeper)
        self.assertEqual(self.ask("resume", sleeper.pid, "cuMemCreate")["bytes"], 4 * MIB)
        self.assert_awake(sleeper)

    def test_many_turns(self):
        sleeper = Sleeper(self, "alloc", "async", "pool", "mapped")
        for _ in range(20):
            self.ask("pause", sleeper.pid)
            self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_pool_is_paused_by_its_name(self):
        sleeper = Sleeper(self, "alloc", "pool")
        self.assertIn("'weights': it has cuMemPoolCreate#1", self.refused("pause", sleeper.pid, "weights"))
        self.assert_awake(sleeper)
        paused = self.ask("pause", sleeper.pid, "cuMemPoolCreate#1")
        shown = [line for line in emm("top").stdout.splitlines() if line.split()[:1] == [str(sleeper.pid)]]
        self.assertEqual([re.search(r" [01]( .+?)?  ", line)[0].strip() for line in shown],
                         ["0 held", "0 cuMemPoolCreate#1 paused, held"])
        self.assertEqual([pool["pool"] for pool in paused["pools"]], ["cuMemPoolCreate#1"])
        self.assert_sleeps(sleeper)
        self.assertGreaterEqual(sleeper.reserved(), 4 * MIB)  # the other pool's
        self.assertGreaterEqual(self.ask("pause", sleeper.pid)["bytes"], 4 * MIB)
        self.ask("resume", sleeper.pid, "cuMemPoolCreate#1")
        self.assert_sleeps(sleeper)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_host_function_that_does_not_end_ends_the_pause_and_nothing_has_changed(self):
        sleeper = Sleeper(self, "alloc", progress="lazy")
        sleeper.tell("block")
        reserved = sleeper.reserved()
        self.assertIn("its work on the device did not end within 0.3 s (still running); nothing has changed", self.refused("pause", sleeper.pid, "--limit", "0.3"))
        self.assertEqual(sleeper.reserved(), reserved)
        self.assert_awake(sleeper)
        sleeper.tell("unblock")
        self.ask("pause", sleeper.pid)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_capture_refuses_the_pause(self):
        sleeper = Sleeper(self, "alloc")
        sleeper.tell("capture")
        self.assertIn("a capture is in progress", self.refused("pause", sleeper.pid))
        self.assert_awake(sleeper)
        sleeper.tell("end-capture")
        self.ask("pause", sleeper.pid)
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_program_that_cannot_be_held_refuses_in_a_sentence(self):
        sleeper = Sleeper(self, "alloc", options=())
        expected = "it was started without emm run --pausable"
        self.assertIn(expected, self.refused("pause", sleeper.pid))
        self.assert_awake(sleeper)

    def test_a_plugin_that_cannot_pause_refuses_and_nothing_has_changed(self):
        sleeper = Sleeper(self, "alloc", plugin="passthrough")
        self.assertIn("this plugin does not pause", self.refused("pause", sleeper.pid))
        self.assert_awake(sleeper)

    def test_a_stopped_process_is_said_to_be(self):
        sleeper = Sleeper(self, "alloc")
        sleeper.process.send_signal(signal.SIGSTOP)
        self.assertIn("the process is stopped", self.refused("pause", sleeper.pid))
        sleeper.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)  # a pause without a waiting client is not carried out
        self.assert_awake(sleeper)

    def test_a_resume_without_memory_may_be_tried_again(self):
        shared = ("--pausable", "--limit", "10MiB", "--shared", f"outside-{os.getpid()}")
        sleeper = Sleeper(self, "alloc", "mapped", options=shared)
        self.ask("pause", sleeper.pid)
        sleeper.process.send_signal(signal.SIGSTOP)  # the whole budget is free without its help
        other = Sleeper(self, "alloc", "mapped", options=shared)
        sleeper.process.send_signal(signal.SIGCONT)
        other.process.send_signal(signal.SIGSTOP)  # it holds at least 4 MiB, and gives none of them back
        self.refused("resume", sleeper.pid)
        self.assert_sleeps(sleeper)
        other.end()
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    @unittest.skipUnless(IS_SIMULATED, "a real driver does not fail by wish")
    def test_a_resume_without_memory_calls_nothing_of_the_program(self):
        sleeper = Sleeper(self, "alloc", "mapped")
        sleeper.tell("callback")
        self.ask("pause", sleeper.pid)
        sleeper.tell("fault cuMemCreate@1+")
        self.refused("resume", sleeper.pid)
        self.refused("resume", sleeper.pid, "cuMemCreate")
        sleeper.tell("fault ")
        self.assertEqual(sleeper.tell("pressed"), "0")
        self.ask("resume", sleeper.pid)
        self.assert_awake(sleeper)

    def test_a_program_that_sleeps_may_fork_end_and_be_killed(self):
        for end in ("exit", "quick-exit", "kill"):
            with self.subTest(end=end):
                sleeper = Sleeper(self, "alloc", "mapped")
                self.ask("pause", sleeper.pid)
                self.assertEqual(sleeper.tell("fork"), "child ended")
                if end == "kill":
                    sleeper.process.send_signal(signal.SIGKILL)
                else:
                    sleeper.process.stdin.write(end + "\n")
                self.assertEqual(sleeper.process.wait(TIMEOUT), -signal.SIGKILL if end == "kill" else 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[1:], verbosity=2)
