#!/usr/bin/env python3
"""Programs that share a limit (EMM_LIMIT_SHARED), and limits that change (emm limit), on the simulated driver. Each program
has a simulated device of its own: the budget is emm's."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import emm_program
from top_programs import HOLDER, Holder, Liar, MIB, environment, shown, stats_of, until

COPIES, LIBEMM = os.environ["EMM_TEST_COPIES"], os.environ["EMM_TEST_LIBEMM"]
LIMIT = 512  # MiB
SIM = "memory=4GiB"


class Budget(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def member(self, *steps, name="job", limit=f"{LIMIT}MiB", **options):
        options = {"EMM_SIM": SIM, "EMM_LIMIT_FOLDER": self.folder, "EMM_LOG": "warn", **options}
        if name:
            options["EMM_LIMIT_SHARED"] = name
        if limit:
            options["EMM_LIMIT"] = limit
        return Holder(self, *steps, **options)

    def ask(self, holder, step):
        holder.tell(step)
        return holder.said[{"fill": "filled"}.get(step, step)]

    def stop(self, holder):
        """Its threads stop one by one."""
        os.kill(holder.pid, signal.SIGSTOP)
        tasks = list(pathlib.Path(f"/proc/{holder.pid}/task").glob("*/stat"))
        until(lambda: all(task.read_text().rsplit(")", 1)[1].split()[0] == "T" for task in tasks))

    def limit(self, whose, size):
        return emm_program.run("limit", whose, size, EMM_LIMIT_FOLDER=self.folder)

    def refused(self, *arguments, status=1, **variables):
        done = emm_program.run("limit", *arguments, **{"EMM_LIMIT_FOLDER": self.folder, **variables})
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("emm: ")]), 1, done.stderr)
        return done.stderr

    def start(self, **variables):
        """The error of a program that cannot start."""
        done = subprocess.run([HOLDER, "alloc=1"], text=True, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              env=environment(**{"EMM_PLUGIN": "pool", "EMM_SIM": SIM, "EMM_LIMIT": f"{LIMIT}MiB",
                                                 "EMM_LIMIT_FOLDER": self.folder, **variables}))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr


class Shared(Budget):
    def test_one_three_and_sixteen_programs_obtain_the_limit_together_and_no_more(self):
        for plugin in ("passthrough", "pool", "async"):
            for count in (1, 3, 16):
                members = [self.member(plugin=plugin, name=f"{plugin}-{count}") for _ in range(count)]
                for member in members[1:]:
                    member.tell("alloc=3")
                obtained = self.ask(members[0], "fill") + 3 * (count - 1)
                obtained *= 2 if plugin == "passthrough" else 1  # the driver takes pages of 2 MiB
                with self.subTest(plugin=plugin, count=count):
                    self.assertLessEqual(obtained, LIMIT)
                    # A manager takes pages, and the async plugin's pools grow by 32 MiB.
                    self.assertGreaterEqual(obtained, LIMIT * 0.99 - (count if plugin != "async" else 32 * count))
                for member in members:
                    self.assertEqual(member.end(), 0)

    def test_programs_with_another_name_or_none_share_nothing(self):
        one, other, alone = self.member("fill"), self.member("fill", name="other"), self.member("fill", name=None)
        for member in (one, other, alone):
            self.assertGreaterEqual(member.said["filled"], LIMIT * 0.99)

    def test_figures_are_those_of_the_budget(self):
        one, other = self.member("alloc=100"), self.member("alloc=50")
        self.assertEqual(self.ask(other, "limit"), LIMIT)
        one.tell("trim")
        self.assertGreaterEqual(self.ask(other, "used"), 150)
        self.assertIn(self.ask(other, "told") + self.ask(other, "used"), (LIMIT - 1, LIMIT))

    def test_emm_info_shows_the_group_and_marks_a_limit_that_makes_no_sense(self):
        self.member("alloc=100")
        job = {"EMM_LIMIT": f"{LIMIT}MiB", "EMM_LIMIT_SHARED": "job", "EMM_LIMIT_FOLDER": self.folder, "EMM_SIM": SIM}
        group = emm_program.answer("info", **job)["group"]
        self.assertEqual((group["name"], group["file"], group["processes"]), ("job", self.folder + "/limit-job", 1))
        self.assertEqual(group["devices"][0]["limit"], LIMIT << 20)
        self.assertGreaterEqual(group["devices"][0]["taken"], 100 << 20)
        self.assertRegex(emm_program.run("info", **job).stdout,
                         r"(?m)^  group job    1 process, \S+/limit-job\n +GPU-\S+: [\d.]+ MiB of 512.00 MiB taken$")
        self.assertEqual(emm_program.answer("info", **{**job, "EMM_LIMIT_SHARED": "new"})["group"]["processes"], 0)
        self.assertIsNone(emm_program.answer("info", **{**job, "EMM_LIMIT_SHARED": None})["group"])
        for variable, value, complaint in (("EMM_LIMIT", "9XB", "expected a size such as"), ("EMM_LIMIT", "5GiB", "expected at most the 4 GiB"),
                                           ("EMM_LIMIT", "GPU-77=1GiB", "expected the UUID"), ("EMM_LIMIT_SHARED", "9", "expected a letter")):
            with self.subTest(value):
                told = emm_program.answer("info", status=1, **{**job, variable: value})["invalid"]
                self.assertEqual(list(told), [variable])
                self.assertRegex(told[variable], f"^{complaint}.*; no context is served$")
        self.assertIn("EMM_LIMIT", emm_program.answer("info", status=1, EMM_LIMIT="9XB", EMM_DRIVER="/nowhere")["invalid"])

    def test_emm_top_names_the_group(self):
        member, alone = self.member("alloc=1"), self.member("alloc=1", name=None)
        told = json.loads(emm_program.run("top", "--count", "1", "--json").stdout)
        groups = {each["pid"]: each["contexts"][0]["account"]["group"] for each in told["processes"]
                  if each["contexts"]}
        self.assertEqual((groups[member.pid], groups[alone.pid]), ("job", None))

    def test_what_a_killed_program_held_is_the_others(self):
        victim, other = self.member("fill"), self.member()
        self.assertEqual(self.ask(other, "fill"), 0)
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        self.assertGreaterEqual(self.ask(other, "fill"), LIMIT * 0.99)

    def test_what_a_killed_program_held_is_free_by_cudas_figures_too(self):
        other, victim = self.member("alloc=1"), self.member("fill")
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        until(lambda: self.ask(other, "told") >= LIMIT * 0.9)

    def test_a_stopped_program_blocks_no_other(self):
        stopped, other = self.member("alloc=100"), self.member()
        self.stop(stopped)
        filled = self.ask(other, "fill")
        self.assertGreaterEqual(filled, LIMIT - 100 - 64)
        self.assertLessEqual(filled, LIMIT - 100)

    def test_a_paused_program_leaves_the_whole_budget_to_others_even_if_it_answers_none(self):
        paused, other = self.member("alloc=500", "pause"), self.member()
        self.stop(paused)
        self.assertEqual(self.ask(other, "fill"), LIMIT)

    def test_a_forked_child_does_not_keep_what_its_parent_held(self):
        parent, other = self.member("fill", "fork"), self.member()
        self.addCleanup(os.kill, parent.said["child"], signal.SIGKILL)
        parent.process.kill()
        parent.process.wait()
        self.assertGreaterEqual(self.ask(other, "fill"), LIMIT * 0.99)

    def test_a_program_that_closes_every_descriptor_is_still_a_member(self):
        closer, other = self.member("fill", "closefrom"), self.member()
        self.assertEqual(self.ask(other, "fill"), 0)
        closer.tell("free=100")

    def test_the_caches_of_neighbours_are_asked_for_before_a_program_is_refused(self):
        keeper, other = self.member("hold=400"), self.member()
        self.assertGreaterEqual(self.ask(other, "fill"), LIMIT * 0.95)
        self.assertLessEqual(self.ask(keeper, "fill"), LIMIT * 0.05)

    def test_programs_that_are_refused_at_once_ask_each_other_and_go_on(self):
        members = [self.member("hold=60") for _ in range(4)]
        for member in members:
            member.process.stdin.write("fill\nready\n")
            member.process.stdin.flush()
            member.said.clear()
        for member in members:
            while "ready" not in member.said:
                member.hear()
        filled = sum(member.said["filled"] for member in members)
        self.assertLessEqual(filled, LIMIT)
        self.assertGreaterEqual(filled, LIMIT * 0.95)

    def test_a_stopped_neighbour_counts_again_once_it_has_answered(self):
        stopped, other = self.member("hold=400"), self.member()
        self.stop(stopped)
        for _ in range(3):
            self.assertLessEqual(self.ask(other, "fill"), LIMIT)
        os.kill(stopped.pid, signal.SIGCONT)
        until(lambda: self.ask(other, "fill") >= LIMIT * 0.95)

    def test_the_limit_of_the_program_that_joined_first_holds_and_another_is_warned_of(self):
        self.member("alloc=1")
        second = self.member("limit", limit="1GiB")
        self.assertEqual(second.said["limit"], LIMIT)
        second.end()
        self.assertIn("the group job keeps the limit 512 MiB of the process that joined first, not 1 GiB", second.errors)

    def test_the_limit_of_a_job_that_has_ended_does_not_hold_for_the_next(self):
        self.member("alloc=1").end()
        self.assertEqual(self.member("limit", limit="1GiB").said["limit"], 1024)

    def test_devices_are_told_apart_by_uuid_never_by_ordinal(self):
        devices = {"EMM_SIM": f"{SIM},devices=2"}
        one, other = self.member("device=1", "fill", **devices), self.member("device=0", "fill", **devices)
        self.assertGreaterEqual(one.said["filled"], LIMIT * 0.99)
        self.assertGreaterEqual(other.said["filled"], LIMIT * 0.99)
        self.assertEqual(self.member("device=1", "fill", **devices).said["filled"], 0)

    def test_bad_names_folders_and_files_are_one_sentence_each(self):
        for name in ("17", "a/b", "..", "a b", "x" * 65):
            self.assertIn("EMM_LIMIT_SHARED (emm run --shared): expected a letter and up to 63 more", self.start(EMM_LIMIT_SHARED=name))
        self.assertIn("EMM_LIMIT_SHARED needs EMM_LIMIT, which is not set", self.start(EMM_LIMIT_SHARED="job", EMM_LIMIT=""))
        self.assertIn("expected the absolute path of a folder",
                      self.start(EMM_LIMIT_SHARED="job", EMM_LIMIT_FOLDER="/nowhere"))
        file = pathlib.Path(self.folder, "limit-job")
        file.write_bytes(b"short")
        file.chmod(0o600)
        self.assertIn("found 5", self.start(EMM_LIMIT_SHARED="job"))
        file.chmod(0o644)
        self.assertIn("(mode 0644)", self.start(EMM_LIMIT_SHARED="job"))


class Copies(Budget):
    """Two copies of libemm in one process, of which "one" has read the limits first."""

    def copies(self, device=0, **variables):
        build = pathlib.Path(LIBEMM).parents[1]
        variables = {"EMM_SIM": SIM, "EMM_PLUGIN": f"{build}/plugins/pool/libemm-pool.so", "EMM_LIMIT_FOLDER": self.folder,
                     "EMM_DRIVER": f"{build}/tools/simcuda/libcuda.so.1", **variables}
        process = subprocess.Popen([COPIES, LIBEMM, str(device)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   env=environment(**variables))
        self.addCleanup(process.communicate)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def step(self, process, step):
        """How many MiB that copy then has."""
        process.stdin.write(step + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def test_the_caches_of_neighbours_are_asked_for_before_any_copy_is_refused(self):
        for copy in ("one", "other"):
            with self.subTest(copy):
                keeper = self.member("hold=400", name=copy)
                copies = self.copies(EMM_LIMIT=f"{LIMIT}MiB", EMM_LIMIT_SHARED=copy)
                self.assertGreaterEqual(self.step(copies, f"{copy} fill"), LIMIT * 0.95)
                self.assertLessEqual(self.ask(keeper, "fill"), LIMIT * 0.05)

    def test_neighbours_obtain_what_any_copy_keeps(self):
        for copy in ("one", "other"):
            with self.subTest(copy):
                copies = self.copies(EMM_LIMIT=f"{LIMIT}MiB", EMM_LIMIT_SHARED=copy)
                self.step(copies, f"{copy} fill")
                self.assertEqual(self.step(copies, f"{copy} free"), 0)
                self.assertGreaterEqual(self.ask(self.member(name=copy), "fill"), LIMIT * 0.99)

    def test_a_limit_that_is_added_holds_for_all_copies_whichever_answers(self):
        first_gpu = emm_program.answer("info", EMM_SIM=SIM)["driver"]["devices"][0]["uuid"]
        for device, variables in ((0, {"EMM_DRIVER_METER": "1"}),
                                  (1, {"EMM_LIMIT": f"{first_gpu}=1GiB", "EMM_SIM": f"{SIM},devices=2"})):
            for answers, other in (("one", "other"), ("other", "one")):
                with self.subTest(answers=answers, **variables):
                    copies = self.copies(device, **variables)
                    self.step(copies, f"{answers} begin")
                    done = self.limit(copies.pid, f"{LIMIT}MiB")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertLessEqual(self.step(copies, f"{other} fill"), LIMIT)
                    self.assertLessEqual(self.step(copies, f"{answers} fill"), LIMIT * 0.05)


class Changed(Budget):
    def test_more_holds_at_once_and_less_is_refused_until_the_program_fits(self):
        alone = self.member("fill", name=None)
        self.assertEqual(self.limit(alone.pid, "1GiB").returncode, 0)
        filled = self.ask(alone, "fill")
        self.assertGreaterEqual(filled, 1024 * 0.99)
        self.assertEqual(self.ask(alone, "limit"), 1024)
        done = self.limit(alone.pid, "256MiB")
        self.assertEqual((done.returncode, done.stdout), (0, "256MiB for 1 process: 1.00 GiB of device 0 are in use and stay; "
                                                             "requests fail until there is room\n"), done.stderr)
        self.assertEqual(self.ask(alone, "fill"), filled)  # live memory is not touched
        alone.tell("free=900")  # into the cache of its plugin, which must give it back
        until(lambda: self.ask(alone, "used") <= 128)
        filled = self.ask(alone, "fill")
        self.assertLessEqual(filled, 256)
        self.assertGreaterEqual(filled, 256 * 0.99)

    def test_once_there_is_more_a_block_may_be_larger_than_the_old_limit(self):
        for plugin in ("passthrough", "pool", "async"):
            with self.subTest(plugin):
                alone = self.member("block=400", plugin=plugin, name=None)
                self.assertEqual(self.limit(alone.pid, "1GiB").returncode, 0)
                alone.tell("block=900")

    def test_a_smaller_limit_has_the_program_give_back_what_it_keeps(self):
        alone = self.member("hold=400", name=None)
        self.assertEqual(self.limit(alone.pid, "64MiB").returncode, 0)
        until(lambda: self.ask(alone, "used") <= 64)

    def test_free_and_live_memory_are_not_more_than_a_smaller_limit(self):
        alone = self.member("alloc=49", plugin="async", name=None)  # of a pool of 64 MiB
        self.assertEqual(self.limit(alone.pid, "52MiB").returncode, 0)
        self.assertLessEqual(self.ask(alone, "told"), 52 - 49)

    def test_a_groups_limit_changes_for_all_members(self):
        one, other = self.member("alloc=200"), self.member("hold=200")
        done = self.limit("job", "256MiB")
        self.assertEqual((done.returncode, done.stdout), (0, "256MiB for 2 processes\n"), done.stderr)
        done = self.limit("job", "128MiB")
        self.assertRegex(done.stdout, r"^128MiB for 2 processes: [\d.]+ MiB of GPU-\S+ are in use and stay; requests fail until "
                                      r"there is room\n$")
        self.assertEqual(self.limit("job", "256MiB").returncode, 0)
        for member in (one, other):
            self.assertEqual(self.ask(member, "limit"), 256)
        self.assertLessEqual(self.ask(other, "fill"), 56)
        self.assertEqual(self.limit("job", "1GiB").returncode, 0)
        filled = self.ask(other, "fill")
        self.assertLessEqual(filled, 824)
        self.assertGreaterEqual(filled, 824 - 32)

    def test_what_cannot_be_is_one_sentence_each(self):
        alone, member, free = self.member(name=None), self.member("alloc=1"), self.member("alloc=1", name=None, limit=None)
        alone.tell("alloc=1")
        self.assertIn(f"limit: process {alone.pid}: expected at most the 4 GiB that device 0", self.refused(alone.pid, "5GiB"))
        self.assertIn("expected the UUID of a device", self.refused(alone.pid, "GPU-77=1GiB"))
        self.assertIn("emm limit job SIZE", self.refused(member.pid, "1GiB"))
        self.assertIn("it has no limit", self.refused(free.pid, "1GiB"))
        self.assertIn("is not a process of this user", self.refused(1, "1GiB"))
        self.assertIn("expected at most the 4 GiB that device 0", self.refused("job", "5GiB"))
        self.assertIn("no group has the name 'none'", self.refused("none", "1GiB"))
        for whose, size, expected in ((alone.pid, "1GB", "expected a size such as"), ("a/b", "1GiB", "neither a process id nor a group's name"),
                                      (alone.pid, "1MiB", "at least 2MiB")):
            self.assertIn(expected, self.refused(whose, size, status=2))
        member.end()
        self.assertIn("all processes of the group 'job' have ended", self.refused("job", "1GiB"))

    def test_a_process_that_hangs_is_not_waited_for_for_long(self):
        hanging = self.member("alloc=1", name=None)
        self.stop(hanging)
        self.assertIn("no answer for", self.refused(hanging.pid, "1GiB"))

    def test_what_a_stopped_process_was_asked_does_not_change_it_once_it_goes_on(self):
        stopped = self.member("hold=64", name=None)
        self.stop(stopped)
        self.assertIn("the process is stopped", self.refused(stopped.pid, "1GiB"))
        self.assertIn("the process is stopped", emm_program.run("set", stopped.pid, "release_threshold=0").stderr)
        os.kill(stopped.pid, signal.SIGCONT)
        self.assertGreaterEqual(stats_of(shown()[stopped.pid])["reserved_bytes"], 64 * MIB)
        self.assertEqual(self.ask(stopped, "limit"), LIMIT)

    def test_a_process_that_hangs_up_is_said_to(self):
        with Liar(lambda client: None) as liar:
            said = f"process {liar.pid} hung up without an answer"
            self.assertIn(said, self.refused(liar.pid, "1GiB"))
            self.assertIn(said, self.refused(liar.pid, self.many(9)))

    def test_each_of_many_devices_may_have_a_limit_of_its_own(self):
        devices = {"EMM_SIM": f"{SIM},devices=16"}
        found = emm_program.answer("info", **devices)["driver"]["devices"]
        size = ";".join([*(f"{device['uuid']}=1GiB" for device in found), "*=2GiB"])
        alone = self.member("device=15", "alloc=1", name=None, **devices)
        self.assertEqual(self.limit(alone.pid, size).returncode, 0)
        self.assertEqual(self.ask(alone, "limit"), 1024)
        self.assertIn("at most 4096 bytes", self.refused(alone.pid, self.many(99), status=2))

    @staticmethod
    def many(count):
        return ";".join(f"GPU-{i:032x}=1GiB" for i in range(count))


if __name__ == "__main__":
    unittest.main()
