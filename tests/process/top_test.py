#!/usr/bin/env python3
"""`emm top` and the programs that it asks: good ones, ones that hang, die or lie, and other users'."""
import gzip
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import emm_program
import exchange_samples
from top_programs import (HOLDER, MIB, OTHER_USER, TIMEOUT, Holder, Liar, environment, framed, names_of,
                          request, shown, stats_of, top, until)


SANITIZERS = os.environ["EMM_TEST_SANITIZERS"]
WITH_INTERPOSER = unittest.skipIf(os.environ["EMM_TEST_RECORDS"] == "0", "no interposer that this Python can load")


class Figures(unittest.TestCase):
    def test_each_program_is_shown_with_its_plugin_and_its_figures(self):
        one = Holder(self, "alloc=3", plugin="passthrough")
        other = Holder(self, "alloc=5", plugin="pool")
        found = shown()
        for holder, plugin, count in ((one, "passthrough", 3), (other, "pool", 5)):
            process = found[holder.pid]
            self.assertEqual((process["plugin"], process["problem"], process["stuck_ns"]),
                             (plugin, None, 0))
            self.assertTrue(process["command"].endswith(f"holder alloc={count} ready wait"))
            stats = stats_of(process)
            self.assertEqual((stats["live_bytes"], stats["live_count"], stats["allocations"]),
                             (count * MIB, count, count))
            self.assertGreaterEqual(stats["reserved_bytes"], count * MIB)
            self.assertEqual(process["contexts"][0]["allocations_per_second"], 0)
            self.assertRegex(process["contexts"][0]["uuid"], "^GPU-[0-9a-f-]{36}$")

    def test_a_devices_bound_is_told_with_what_it_leaves(self):
        holder = Holder(self, "alloc=3", plugin="passthrough", EMM_LIMIT="64MiB")
        self.assertEqual(shown()[holder.pid]["contexts"][0]["account"],
                         {"limit_bytes": 64 * MIB, "used_bytes": 6 * MIB, "free_bytes": 58 * MIB,  # whole pages
                          "managers_bytes": 6 * MIB, "program_bytes": 0, "group": None})

    def test_a_program_that_allocates_has_a_rate(self):
        holder = Holder(self, "steady=1000")
        self.assertGreater(shown()[holder.pid]["contexts"][0]["allocations_per_second"], 0)

    def test_a_program_that_has_retired_its_context_or_shut_down_serves_none(self):
        for step in ("retire", "shutdown"):
            holder = Holder(self, "alloc=1", step)
            self.assertEqual(shown()[holder.pid]["contexts"], [])

    def test_many_programs_are_shown_at_once(self):
        holders = [Holder(self, f"alloc={1 + index % 3}", plugin="passthrough")
                   for index in range(100 if SANITIZERS == "none" else 10)]
        found = shown()
        for index, holder in enumerate(holders):
            self.assertEqual(stats_of(found[holder.pid])["live_count"], 1 + index % 3)

    def test_names_with_escape_codes_and_quotes_and_long_ones_do_no_harm(self):
        evil, long = "evil\033[2J\n\"\\\u202e", "x" * (100 << 10)
        for called in (evil, long):
            holder = Holder(self, "slow", "alloc=1", plugin="", called=called)
            process = shown()[holder.pid]
            self.assertEqual(process["plugin_version"], '1 ?[31m"\\')
            self.assertLessEqual(len(process["command"]), 512)
            table = top().stdout
            self.assertNotIn("\033", table)
            self.assertNotIn("\u202e", table)
            self.assertIn('plugin_version="1 ?[31m\\"\\\\"', top("--prometheus").stdout)


    def test_the_options_of_a_plugin_are_told_and_those_that_change(self):
        holder = Holder(self, "alloc=3", plugin="pool:max=64MiB")
        context, = shown()[holder.pid]["contexts"]
        self.assertEqual((context["spec"], context["changed_options"]), ("pool:max=64MiB", None))
        self.assertEqual(emm_program.run("set", holder.pid, "max=16MiB").returncode, 0)
        context, = shown()[holder.pid]["contexts"]
        self.assertEqual((context["spec"], context["changed_options"]), ("pool:max=64MiB", "max=16MiB"))
        self.assertIn("  pool:max=64MiB, now max=16MiB  ", top().stdout)


class PausesFromOutside(unittest.TestCase):
    """emm pause and emm resume, of a program whose calls nothing holds; others are in tests/interpose/outside_test.py."""

    def test_a_program_that_links_libemm_refuses_in_a_sentence_and_goes_on(self):
        holder = Holder(self, "alloc=3")
        for words in (("pause", holder.pid), ("pause", holder.pid, "kv", "--discard"), ("resume", holder.pid)):
            done = emm_program.run(*words)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("its calls cannot be held: it was started without emm run --pausable", done.stderr)
        self.assertEqual(stats_of(shown()[holder.pid])["live_count"], 3)

    @WITH_INTERPOSER
    def test_a_program_that_could_be_held_and_has_called_no_cuda_is_said_to_be_such(self):
        holder = Holder(self, "alloc=3", run_by=(emm_program.EMM, "run", "--pausable", "--", HOLDER))
        for command in ("pause", "resume"):
            done = emm_program.run(command, holder.pid)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("it has not called cuInit yet", done.stderr)

    def test_what_is_no_process_or_too_long_a_name_is_told(self):
        self.assertIn("that uses emm", emm_program.run("pause", 1).stderr)
        for words in (("pause", 1), ("resume", 1), ("limit", 1, "1GiB"), ("set", 1, "max=1GiB"), ("top", "--dump", 1),
                      ("export", "--pid", 1, "--to", "pprof", "-o", "/dev/null")):
            self.assertEqual(emm_program.answer(*words, status=1)["error"]["stage"], words[0])
        holder = Holder(self, "alloc=1")
        self.assertEqual(emm_program.run("pause", holder.pid, "x" * 5000).returncode, 2)


class OptionsThatChange(unittest.TestCase):
    """emm set."""

    def reserved(self, holder, pool=None):
        holder_contexts = {context["pool"]: context for context in shown()[holder.pid]["contexts"]}
        return holder_contexts[pool]["stats"]["reserved_bytes"]

    def refused(self, *arguments, status=1):
        done = emm_program.run("set", *arguments)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("emm: ")]), 1, done.stderr)
        return done.stderr

    def test_a_lower_max_has_a_process_give_back_what_is_idle(self):
        holder = Holder(self, "alloc=8", "hold=64")
        self.assertGreaterEqual(self.reserved(holder), 72 * MIB)
        done = emm_program.run("set", holder.pid, "max=16MiB")
        self.assertEqual((done.returncode, done.stdout), (0, "max is 16MiB in 1 pool\n"), done.stderr)
        self.assertLessEqual(self.reserved(holder), 16 * MIB)
        self.assertEqual(emm_program.answer("set", holder.pid, "max="), {"pools": 1, "option": "max", "value": "", "above": None})
        holder.tell("hold=64")
        self.assertGreaterEqual(self.reserved(holder), 64 * MIB)

    def test_a_max_below_what_is_live_is_told_with_how_much_that_is(self):
        holder = Holder(self, "alloc=8", "pool=1", "alloc=64")
        done = emm_program.run("set", holder.pid, "pool-1", "max=16MiB")
        self.assertRegex(done.stdout, r"^max is 16MiB in 1 pool: 64.00 MiB of device 0, context \d+, pool pool-1 are live, 48.00 MiB "
                                      r"above its limit, which applies to new requests\n$")
        self.assertIn("48.00 MiB above", emm_program.answer("set", holder.pid, "pool-1", "max=16MiB")["above"])
        self.assertEqual(emm_program.run("set", holder.pid, "pool-1", "slack=0").stdout, "slack is 0 in 1 pool\n")

    def test_live_memory_that_is_spilled_is_not_above_a_max(self):
        holder = Holder(self, "alloc=60", plugin="pool:max=32MiB,spill=64MiB")
        self.assertEqual(emm_program.answer("set", holder.pid, "max=33MiB")["above"], None)

    def test_a_named_pool_changes_alone(self):
        holder = Holder(self, "hold=32", "pool=1", "hold=32")
        done = emm_program.run("set", holder.pid, "pool-1", "release_threshold=0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.reserved(holder, "pool-1"), 0)
        self.assertGreaterEqual(self.reserved(holder), 32 * MIB)
        self.assertIn("no pool has the name 'pool-2': it has pool-1", self.refused(holder.pid, "pool-2", "max=16MiB"))

    def test_what_is_refused_is_one_sentence_and_changes_nothing(self):
        holder = Holder(self, "hold=32")
        for setting, words in (("growth=segment", "option 'growth' of plugin 'pool' cannot change while it serves: "
                                                  "expected one of max, release_threshold, slack"),
                               ("max=1MiB", "expected at least 2MiB, found 1MiB"),
                               ("max=8GB", "expected a size"), ("maxx=8MiB", "did you mean 'max'?")):
            self.assertIn(words, self.refused(holder.pid, setting))
        self.assertRegex(self.refused(holder.pid, "slack=banana"), r"found 'banana'.*saves memory\.?\)?\n$")
        self.assertGreaterEqual(self.reserved(holder), 32 * MIB)
        self.assertIn("KEY=VALUE", self.refused(holder.pid, "max", status=2))
        self.assertIn("expected one option at a time, found 'max=16MiB' and 'slack=0'",
                      self.refused(holder.pid, "max=16MiB", "slack=0", status=2))
        other = Holder(self, "alloc=1", plugin="passthrough")
        self.assertIn("change options while it serves", self.refused(other.pid, "max=16MiB"))
        self.assertIn("is not a process of this user", self.refused(os.getpid(), "max=16MiB"))
        with subprocess.Popen(["true"]) as ended:
            ended.wait()
        self.assertIn(f"there is no process {ended.pid}", self.refused(ended.pid, "max=16MiB"))

    def test_a_plugin_that_hangs_keeps_the_tool_no_longer_than_it_waits(self):
        holder = Holder(self, "slow", "alloc=1", "hang", plugin="")
        shown()
        self.assertIn("is still busy with an earlier request; nothing has changed", self.refused(holder.pid, "max=16MiB"))


class OwnProcesses(unittest.TestCase):
    def test_a_process_of_the_tool_itself_says_what_it_does_and_with_which_plugin(self):
        spec = emm_program.fixture("bad")
        for words, name in ((["replay", "--generate", "train", "--plugin", spec], f"replay {spec}"),
                            (["check", spec, "--filter", "memory/alignment"], "check-case memory/alignment")):
            with subprocess.Popen([emm_program.EMM, *words], env=environment(EMM_TEST_FAULT="hangs"),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
                until(lambda: f"emm --child {name}" in [each["command"] for each in shown().values()])
                program.kill()


# The program knows nothing of emm.
PLAIN = """
import ctypes, sys
driver, context, block = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
for call in (("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0),
             ("cuCtxSetCurrent", context)) + 3 * (
             ("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(1 << 20)),):
    if getattr(driver, call[0])(*call[1:]) != 0:
        raise SystemExit(call[0])
print("ready", flush=True)
sys.stdin.read()
"""


# Python has no sanitizer's runtime, which the interposer would need then.
@WITH_INTERPOSER
class Interposed(unittest.TestCase):
    @unittest.skipUnless((3, 9) <= sys.version_info < (3, 14), "where this Python has its frames is not known")
    def test_the_oldest_allocations_are_told_with_the_line_of_python_that_asked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "hold.py")
            path.write_text(PLAIN, encoding="utf-8")
            with subprocess.Popen([emm_program.EMM, "run", "--track", "stack", "--plugin", "pool", "--", "python3", path],
                                  env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
                self.assertEqual(program.stdout.readline(), "ready\n")
                (context,) = shown()[program.pid]["contexts"]
                program.communicate()
        self.assertEqual(len(context["oldest"]), 3)
        for each in context["oldest"]:
            self.assertRegex(each["caller"], r"^hold\.py:[0-9]+ \(<module>\)$")

    def test_what_is_live_in_a_program_is_exported_as_a_profile(self):
        try:
            import google.protobuf  # noqa: F401
        except ImportError:
            self.skipTest("the Python package protobuf is not installed")
        with tempfile.TemporaryDirectory() as folder:
            script, path = pathlib.Path(folder, "hold.py"), pathlib.Path(folder, "live.pb.gz")
            script.write_text(PLAIN, encoding="utf-8")
            with subprocess.Popen([emm_program.EMM, "run", "--track", "stack", "--plugin", "pool", "--", "python3", script],
                                  env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
                self.assertEqual(program.stdout.readline(), "ready\n")
                told = emm_program.answer("export", "--pid", program.pid, "--to", "pprof", "-o", path)
                program.communicate()
            profile = exchange_samples.read_profile(gzip.decompress(path.read_bytes()))
        self.assertEqual((told["process"], told["live"]), (f"process {program.pid}", 3))
        text = lambda number: profile.string_table[number]
        self.assertEqual([text(each.type) for each in profile.sample_type], ["inuse_objects", "inuse_space"])
        self.assertEqual([sum(each.value[i] for each in profile.sample) for i in (0, 1)], [3, 3 * MIB])
        lines = [(text(each.name), text(each.filename)) for each in profile.function]
        self.assertIn(("<module>", str(script)), lines)
        self.assertTrue(any("ctypes" in file or "libffi" in file or "python" in file for _, file in lines if file != str(script)))

    def test_a_program_that_tracks_nothing_has_no_profile(self):
        holder = Holder(self, "alloc=1")
        done = emm_program.run("export", "--pid", holder.pid, "--to", "pprof", "-o", "/dev/null")
        self.assertEqual(done.returncode, 1)
        self.assertIn("it does not track its allocations", done.stderr)
        for words in (("--pid", holder.pid, "--to", "chrome-trace"), ("log", "--pid", holder.pid, "--to", "pprof"),
                      ("--to", "pprof")):
            self.assertEqual(emm_program.run("export", *words, "-o", "/dev/null").returncode, 2)

    def test_a_program_that_emm_run_has_started_is_shown(self):
        with subprocess.Popen([emm_program.EMM, "run", "--plugin", "pool", "--", "python3", "-c",
                               PLAIN], env=environment(), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as program:
            self.assertEqual(program.stdout.readline(), "ready\n")
            process = shown()[program.pid]
            self.assertEqual((process["plugin"], stats_of(process)["live_bytes"]),
                             ("pool", 3 * MIB))
            program.stdin.close()
            self.assertEqual(program.wait(timeout=TIMEOUT), 0)


class Presence(unittest.TestCase):
    """Who can be asked, and what that costs."""

    def test_a_program_that_no_tool_has_asked_has_one_thread_and_one_descriptor_more(self):
        on, off = (Holder(self, "alloc=1", "threads", "descriptors", plugin="passthrough",
                          EMM_TOP=value) for value in ("on", "off"))
        if SANITIZERS == "none":  # theirs has a thread, which comes with the first of a program's
            self.assertEqual(on.said["threads"], off.said["threads"] + 1)

        def has_one_more():  # but for the connection of another test's tool
            on.tell("descriptors")
            return on.said["descriptors"] == off.said["descriptors"] + 1
        until(has_one_more)

    def test_a_program_with_emm_top_off_cannot_be_found(self):
        holder = Holder(self, "alloc=1", EMM_TOP="off")
        self.assertEqual(names_of(holder.pid), [])
        self.assertNotIn(holder.pid, shown())

    def test_with_a_count_there_are_so_many_objects_and_other_pages_refuse_one(self):
        printed = top("--json", "--count", "3", "--interval", "0.05").stdout
        self.assertEqual(len([line for line in printed.splitlines() if line == "{"]), 3)
        self.assertIn("--count", top("--prometheus", "--count", "3", status=2).stderr)

    def test_another_value_is_warned_about_and_counts_as_on(self):
        holder = Holder(self, "alloc=1", EMM_TOP="no\033")
        self.assertIn(holder.pid, shown())
        holder.end()
        self.assertIn("EMM_TOP: expected on or off, found 'no?'; it is on", holder.errors)

    def test_a_program_that_is_killed_leaves_nothing_behind(self):
        holder = Holder(self, "alloc=1")
        self.assertEqual(len(names_of(holder.pid)), 1)
        holder.process.kill()
        holder.process.wait()
        self.assertEqual(names_of(holder.pid), [])
        self.assertNotIn(holder.pid, shown())

    def test_a_forked_child_does_not_answer_for_its_parent(self):
        holder = Holder(self, "alloc=1", "fork")
        child = holder.said["child"]
        self.addCleanup(os.kill, child, signal.SIGKILL)
        found = shown()
        self.assertIn(holder.pid, found)
        self.assertNotIn(child, found)
        holder.process.kill()
        holder.process.wait()
        self.assertEqual(names_of(holder.pid), [])

    def test_a_program_that_closes_every_descriptor_keeps_what_it_opens_in_their_place(self):
        holder = Holder(self, "alloc=1", "closefrom")
        for _ in range(3):
            top("--prometheus")
        until(lambda: not names_of(holder.pid))
        self.assertNotIn(holder.pid, shown())
        folder = pathlib.Path(f"/proc/{holder.pid}/fd")
        self.assertEqual([os.readlink(folder / str(each)) for each in range(3, 64)],
                         ["/dev/null"] * 61)
        holder.tell("alloc=1")
        self.assertEqual(holder.end(), 0)

    def test_a_child_that_is_forked_after_that_keeps_its_files(self):
        holder = Holder(self, "alloc=1", "closefrom", "fork")
        child = holder.said["child"]
        self.addCleanup(os.kill, child, signal.SIGKILL)
        folder = pathlib.Path(f"/proc/{child}/fd")
        self.assertEqual([os.readlink(folder / str(each)) for each in range(3, 64)],
                         ["/dev/null"] * 61)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_another_user_is_not_answered(self):
        holder = Holder(self, "alloc=1")
        name = names_of(holder.pid)[0]
        asking = ("import os, socket, sys\n"
                  f"os.setresgid({OTHER_USER}, {OTHER_USER}, {OTHER_USER})\n"
                  f"os.setresuid({OTHER_USER}, {OTHER_USER}, {OTHER_USER})\n"
                  "made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                  f"made.settimeout({TIMEOUT})\n"
                  f"made.connect('\\0{name}')\n"
                  "try:\n"
                  f"    made.send(bytes.fromhex('{request().hex()}'))\n"
                  "    print(len(made.recv(1 << 17)))\n"
                  "except ConnectionError:\n"
                  "    print(0)\n")
        done = subprocess.run(["python3", "-c", asking], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "0\n")
        self.assertIn(holder.pid, shown())

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_another_users_socket_is_not_believed(self):
        with Liar(lambda client: client.send(framed(b'{"program":"evil"}')), user=OTHER_USER):
            self.assertNotIn("evil", top("--json").stdout)


class Silence(unittest.TestCase):
    """Programs that do not answer, and peers that do not ask."""

    def test_a_plugin_that_hangs_is_said_to_and_tells_its_figures_once_it_goes_on(self):
        holder = Holder(self, "slow", "alloc=2", "hang", plugin="")
        other = Holder(self, "alloc=1")
        for _ in range(2):
            found = shown()
            process = found[holder.pid]
            self.assertGreater(process["stuck_ns"], 0)
            self.assertIsNone(stats_of(process))
            self.assertEqual(process["contexts"][0]["problem"], "the plugin has not answered yet")
            self.assertEqual(stats_of(found[other.pid])["live_count"], 1)
        self.assertIn("the plugin has not answered for ", top().stdout)
        holder.tell("alloc=1")  # the program itself goes on meanwhile
        holder.tell("resume")
        process = until(lambda: (lambda found: stats_of(found) and found)(shown()[holder.pid]))
        self.assertEqual(stats_of(process)["allocations"], 3)

    def test_a_program_ends_although_its_plugin_hangs_when_it_is_asked(self):
        holder = Holder(self, "slow", "alloc=1", "hang", plugin="")
        self.assertGreater(shown()[holder.pid]["stuck_ns"], 0)
        self.assertEqual(holder.end(), 0)

    def test_a_program_that_is_stopped_is_said_to_be_and_delays_no_other(self):
        holder = Holder(self, "alloc=1")
        other = Holder(self, "alloc=2")
        holder.process.send_signal(signal.SIGSTOP)
        found = shown()
        self.assertRegex(found[holder.pid]["problem"],
                         r"^no answer for \d+\.\d s: the process is stopped$")
        self.assertEqual(found[holder.pid]["program"], "holder")
        self.assertEqual(stats_of(found[other.pid])["live_count"], 2)
        holder.process.send_signal(signal.SIGCONT)
        self.assertEqual(stats_of(shown()[holder.pid])["live_count"], 1)

    def test_a_program_that_takes_no_connection_any_more_is_shown(self):
        holder = Holder(self, "alloc=1")
        holder.process.send_signal(signal.SIGSTOP)
        waiting = []
        for _ in range(1000):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            made.setblocking(False)
            waiting.append(made)
            if made.connect_ex("\0" + names_of(holder.pid)[0]) != 0:
                break
        self.assertLess(len(waiting), 1000)
        self.assertIn("it accepts no connection", shown()[holder.pid]["problem"])
        for made in waiting:
            made.close()

    def test_peers_that_say_nothing_talk_rubbish_or_never_read_harm_no_program(self):
        holder = Holder(self, "alloc=1")
        name = "\0" + names_of(holder.pid)[0]
        peers = []
        for index in range(100):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            made.settimeout(TIMEOUT)
            made.connect(name)
            rubbish = [None, b"", b"\0", os.urandom(16), os.urandom(60000), request(magic=1),
                       request(wish=77), request(), request() + b"x"][index % 9]
            try:
                if rubbish is not None:
                    made.send(rubbish)
            except ConnectionError:
                pass  # the process was silent for too long
            peers.append(made)
        self.assertEqual(stats_of(shown()[holder.pid])["live_count"], 1)
        for made in peers:
            made.close()
        holder.tell("alloc=1")
        self.assertEqual(holder.end(), 0)

    def test_descriptors_that_a_peer_sends_along_are_closed(self):
        holder = Holder(self, "alloc=1")
        top("--prometheus")
        holder.tell("descriptors")
        before = holder.said["descriptors"]
        for _ in range(20):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
                made.settimeout(TIMEOUT)
                made.connect("\0" + names_of(holder.pid)[0])
                socket.send_fds(made, [request()], [0, 1, 2])
                self.assertGreater(len(made.recv(1 << 17)), 16)

        def are_no_more():
            holder.tell("descriptors")
            return holder.said["descriptors"] <= before
        until(are_no_more)

    def test_programs_that_lie_are_shown_as_what_they_are(self):
        holder = Holder(self, "alloc=1")
        deep = b"[" * 40000 + b"]" * 40000
        lies = {b"rubbish": "found 7 bytes",
                os.urandom(4096).replace(b"e", b"f"): "found something else",
                framed(b"{}", version=2): "found version 2",
                framed(b"{}", size=70000): "found 2 bytes of 70000",
                framed(b"[]"): "other than a JSON object",
                framed(deep): "other than a JSON object",
                framed(b'"' * 90000): "other than a JSON object",
                bytes(120_000): "expected version 1"}
        for lie, expected in lies.items():
            with Liar(lambda client, lie=lie: client.send(lie)) as liar:
                found = shown()
                self.assertIn(expected, found[liar.pid]["problem"])
                self.assertEqual(stats_of(found[holder.pid])["live_count"], 1)

    def test_a_program_that_hangs_up_is_not_shown_and_one_that_hangs_is(self):
        with Liar(lambda client: None) as liar:
            self.assertNotIn(liar.pid, shown())
        with Liar(lambda client: time.sleep(TIMEOUT)) as liar:
            self.assertRegex(shown()[liar.pid]["problem"], r"^no answer for \d+\.\d s$")


class Report(unittest.TestCase):
    def test_a_report_is_written_by_the_process_and_printed(self):
        holder = Holder(self, "alloc=3")
        done = top("--dump", holder.pid)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("memory of device 0:\n", done.stdout)
        self.assertIn("3.00 MiB in 3 allocations", done.stdout)
        self.assertEqual(emm_program.answer("top", "--dump", holder.pid)["report"], done.stdout)
        holder.end()
        for line in done.stdout.splitlines():
            self.assertIn(line, holder.errors)

    def test_a_process_that_cannot_write_one_is_refused_in_a_sentence(self):
        done = top("--dump", os.getpid())
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"{os.getpid()} is not a process of this user", done.stderr)
        hanging = Holder(self, "slow", "alloc=1", "hang", plugin="")
        done = top("--dump", hanging.pid)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("has not written its report: its plugin does not answer", done.stderr)


if __name__ == "__main__":
    unittest.main()
