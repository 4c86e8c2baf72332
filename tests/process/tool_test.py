#!/usr/bin/env python3
"""The emm tool as its users meet it: each test's name is the sentence that it proves."""
import fcntl
import gzip
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from emm_program import ACROSS_THREADS, EMM, ERROR_KEYS, PAIR_OF_BLOCKS, Trace, answer, fixture, run

LOG_HEADER = ("Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,"
              "Current Allocs,Start,End,Elapsed,Location")
SANITIZERS = os.environ.get("EMM_TEST_SANITIZERS", "")


class Info(unittest.TestCase):
    def test_it_answers_with_the_documented_keys(self):
        info = answer("info")
        self.assertEqual(list(info), ["plugin", "plugins", "driver", "group", "environment", "invalid"])
        self.assertEqual(list(info["plugin"]),
                         ["name", "version", "path", "abi", "selected_by", "options", "layers"])
        self.assertEqual(list(info["driver"]), ["name", "version", "simulated", "devices"])
        self.assertTrue(info["driver"]["simulated"])
        self.assertEqual(len(info["driver"]["devices"]), 1)
        self.assertRegex(info["driver"]["devices"][0]["uuid"], "^GPU-[0-9a-f-]{36}$")  # as EMM_LIMIT wants it
        self.assertIn(("passthrough", "Passes every request straight to the driver"),
                      [(plugin["name"], plugin["description"]) for plugin in info["plugins"]])

    def test_a_plugin_that_is_found_and_does_not_load_has_no_description(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libemm-text.so").write_text("no library")
            info, told = answer("info", EMM_PLUGIN_PATH=folder), run("info", EMM_PLUGIN_PATH=folder)
        text = {"name": "text", "path": folder + "/libemm-text.so", "description": None, "layer": None}
        self.assertEqual((info["plugins"][0], told.stderr), (text, ""))
        self.assertRegex(told.stdout, r"(?m)^  text +-\n +/.*\n  async +\w.*\n +/")

    def test_the_help_names_every_variable_that_info_shows(self):
        named = re.search(r"\nEnvironment: ((?:.*,\n)*.*)\.\n", run("--help").stdout).group(1)
        self.assertEqual(re.split(r",\s", named), list(answer("info")["environment"]))

    def test_with_nothing_said_passthrough_is_in_force_by_default(self):
        plugin = answer("info")["plugin"]
        self.assertEqual((plugin["name"], plugin["selected_by"]), ("passthrough", "default"))

    def test_a_plugin_named_in_the_environment_is_in_force(self):
        info = answer("info", EMM_PLUGIN="async")
        self.assertEqual((info["plugin"]["name"], info["plugin"]["selected_by"]),
                         ("async", "EMM_PLUGIN"))
        self.assertEqual(info["environment"]["EMM_PLUGIN"], "async")
        self.assertIsNone(info["environment"]["EMM_LOG"])

    def test_a_spec_is_described_with_its_options_and_is_not_what_is_in_force(self):
        plugin = answer("info", fixture("every-option"), EMM_PLUGIN="async")["plugin"]
        self.assertEqual(plugin["path"], fixture("every-option"))
        self.assertEqual(list(plugin["options"][0]), ["name", "kind", "default", "value", "help", "changes"])

    def test_a_stack_is_described_layer_by_layer_with_the_options_of_each(self):
        told = answer("info", "fault:nth=3+count+pool:max=1GiB")["plugin"]
        self.assertEqual((told["name"], [layer["name"] for layer in told["layers"]]), ("pool", ["fault", "count"]))
        self.assertEqual(list(told["layers"][0]), ["name", "version", "description", "path", "options"])
        values = {option["name"]: option["value"] for option in told["layers"][0]["options"] + told["options"]}
        self.assertEqual((values["nth"], values["every"], values["max"]), ("3", "0", "1GiB"))
        shown = run("info", "fault:nth=3+count+pool").stdout
        self.assertRegex(shown, r"(?s)\Alayer +fault .*\nlayer +count .*\nplugin +pool ")

    def test_a_layer_that_is_found_is_described_as_a_plugin_is(self):
        found = {plugin["name"]: plugin["description"] for plugin in answer("info")["plugins"]}
        self.assertEqual(found["count"], "Counts requests and frees of device memory")
        layers = {plugin["name"] for plugin in answer("info")["plugins"] if plugin["layer"]}
        self.assertEqual(layers - {"sanitize"}, {"count", "fault", "guard"})
        self.assertRegex(run("info").stdout, r"(?m)^  count +layer: Counts requests")

    def test_of_a_list_the_first_that_loads_is_described(self):
        told = answer("info", "nosuch;count+async;pool")["plugin"]
        self.assertEqual((told["name"], [layer["name"] for layer in told["layers"]], told["selected_by"]),
                         ("async", ["count"], "argument"))

    def test_a_layer_in_a_plugins_place_is_told_so_in_one_sentence(self):
        self.assertIn("libemm-count.so: it is a layer; a layer is named before a plugin", run("info", "count").stderr)
        self.assertIn("libemm-pool.so: it is a plugin: expected a layer before the '+';",
                      run("info", "pool+async").stderr)

    def test_the_default_of_a_choice_is_one_word_and_its_kind_has_all_of_them(self):
        row = re.search(r"(?m)^  growth .*$", run("info", fixture("every-option") + ":growth=vmm").stdout)
        self.assertEqual(row.group(0).split(), ["growth", "segment|vmm", "vmm", "segment"])

    def test_a_limit_that_no_allocation_fits_into_is_refused_before_anything_runs(self):
        for arguments in (["info", "pool:max=1KiB"], ["check", "pool:max=1KiB"],
                          ["run", "--plugin", "pool:max=1KiB", "--", "echo", "started"]):
            done = run(*arguments)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertNotRegex(done.stdout, "(?m)^(plugin |started)", arguments)
            self.assertIn("pool: option max: expected at least 2MiB, found 1KiB", done.stderr)

    def test_a_path_with_dots_in_it_is_taken_and_the_real_one_is_told(self):
        folder, file = os.path.split(fixture("every-option"))
        dotted = f"{folder}/../{os.path.basename(folder)}/./{file}"
        self.assertEqual(answer("info", dotted)["plugin"]["path"], os.path.realpath(dotted))

    def test_a_plugin_that_does_not_load_is_told_as_one_error_object_beside_the_rest(self):
        info = answer("info", status=1, EMM_PLUGIN="passthruogh")
        self.assertEqual(list(info), ["plugin", "plugins", "driver", "group", "environment", "invalid"])
        self.assertIn("passthrough", [plugin["name"] for plugin in info["plugins"]])
        told = info["plugin"]
        self.assertEqual(list(told), ["error"])
        self.assertEqual(list(told["error"]), ERROR_KEYS)
        self.assertEqual(told["error"]["stage"], "resolve")
        self.assertGreater(len(told["error"]["tried"]), 0)
        self.assertIn("passthrough", told["error"]["hint"])

    def test_people_are_told_the_sentence_the_paths_and_the_hint(self):
        done = run("info", "passthruogh")
        self.assertRegex(done.stdout, r"\Aplugins found\n(.*\n)*driver +SIMULATED")
        self.assertRegex(done.stderr, r"\Aemm: .*passthruogh")
        paths = done.stderr.split("tried:")[1].split("hint:")[0].split()
        self.assertEqual([done.stderr.count(path) for path in paths], [1] * len(paths))
        self.assertNotEqual(paths, [])
        self.assertEqual((done.returncode, done.stderr.count("did you mean 'passthrough'?")), (1, 1))
        self.assertIn("; write pool", run("info", "libemm-pool.so").stderr)

    def test_a_machine_without_a_driver_is_no_failure(self):
        self.assertEqual(run("info", EMM_DRIVER=None).returncode, 0)

    def test_a_plugin_that_gives_way_to_the_next_in_the_list_is_named_in_a_warning(self):
        done = run("info", EMM_PLUGIN="passthruogh;async")
        self.assertEqual(done.returncode, 0)
        self.assertIn("async", done.stdout)
        self.assertEqual(done.stderr.count("[warning] no plugin is called 'passthruogh'"), 1)

    def test_a_driver_that_was_named_and_is_missing_is_shown_and_is_a_failure(self):
        info = answer("info", status=1, EMM_DRIVER="/nowhere/libcuda.so.1")
        self.assertEqual(info["plugin"]["name"], "passthrough")
        self.assertIn("/nowhere/libcuda.so.1", info["driver"]["error"]["message"])
        self.assertIn("EMM_DRIVER names it", info["driver"]["error"]["message"])
        self.assertIn("driver         none",
                      run("info", EMM_DRIVER="/nowhere/libcuda.so.1").stdout)

    def test_a_driver_that_is_too_old_or_none_at_all_is_refused_by_what_it_lacks(self):
        for reason, driver, settings in (
                ("has no cuCtxGetId, which CUDA 12.0 and later have", "sim", "driver=11080"),
                ("has no cuGetProcAddress_v2; expected a driver for CUDA 12.0 or later", fixture("good"), None),
                ("EMM_DRIVER: expected 'sim' or an absolute path, found 'libcuda.so.1'", "libcuda.so.1", None)):
            with self.subTest(driver=driver):
                driver = answer("info", status=1, EMM_DRIVER=driver, EMM_SIM=settings)["driver"]
                self.assertIn(reason, driver["error"]["message"])

    def test_a_variable_that_makes_no_sense_is_warned_about_once(self):
        for name, value, expected in (
                ("MAX_PENDING_DEALLOCS_COUNT", "ten", "a whole number from 0 to 2^64 - 1, found 'ten'; the default is used"),
                ("MAX_PENDING_DEALLOCS_RATIO", "5", "a number from 0 to 1, found '5'; the default is used"),
                ("LOG", "loud", "off, error, warn, info or debug, and perhaps :FILE, found 'loud'"),
                ("ALLOW_UNTRUSTED", "yes", "0 or 1, found 'yes'"),
                ("PLUGIN_PATH", "mine", "an absolute path")):
            done = run("info", **{f"EMM_{name}": value})
            self.assertEqual(done.returncode, 0)
            self.assertEqual(done.stderr.count("[warning]"), 1, done.stderr)
            self.assertRegex(done.stderr, f"EMM_{name}: .*expected {re.escape(expected)}")

    def test_a_variable_with_a_value_that_it_does_not_take_is_marked_and_no_other(self):
        self.assertEqual(answer("info", EMM_TOP="off", EMM_LOG="error", EMM_TRACK="stack")["invalid"], {})
        for name, expected in (("EMM_TOP", "on or off"), ("EMM_DRIVER_METER", "0 or 1"), ("EMM_LOG", "off, error, "),
                               ("EMM_ALLOW_UNTRUSTED", "0 or 1"), ("EMM_PLUGIN_PATH", "absolute folders")):
            invalid = answer("info", **{name: "yes"})["invalid"]
            self.assertEqual(list(invalid), [name])
            self.assertIn(f"expected {expected}", invalid[name])
            self.assertRegex(run("info", **{name: "yes"}).stdout,
                             rf"(?m)^  {name} +yes\n +not valid: expected {expected}.*, found 'yes'; ")

    def test_a_value_that_a_variable_does_not_take_is_warned_of_once_also_if_it_is_first_used_later(self):
        names = ("TRACK", "OOM_REPORT", "STATS", "TOP", "MAX_PENDING_DEALLOCS_COUNT", "MAX_PENDING_DEALLOCS_RATIO",
                 "IPC_STAGED", "ALLOW_UNTRUSTED")
        with Trace(PAIR_OF_BLOCKS) as trace:
            told = run("replay", trace, **{f"EMM_{name}": "yes" for name in names}).stderr
        for name in names:
            self.assertRegex(told, rf"\[warning\] EMM_{name}: expected .*, found 'yes'; ")
        self.assertEqual(told.count("[warning]"), len(names), told)
        self.assertIn("EMM_DRIVER_METER: expected 0 or 1, found 'yes'; nothing is counted",
                      run("info", EMM_DRIVER_METER="yes").stderr)

    def test_a_setting_of_the_simulated_driver_that_makes_no_sense_is_named(self):
        for setting in ("colour=red", "progress=slow", "fail=cuMemAlloc@x", "fail=cuNoCall@1"):
            message = answer("info", status=1,
                             EMM_SIM="devices=2," + setting)["driver"]["error"]["message"]
            self.assertIn("EMM_SIM", message)
            told = run("bench", "--case", "pair", EMM_SIM=setting).stderr
            self.assertEqual(told.count("EMM_SIM: "), 1, told)
            self.assertIn(setting.split("=")[0 if "colour" in setting else 1], message)

    def test_people_are_told_that_the_driver_is_simulated(self):
        self.assertIn("SIMULATED", run("info").stdout)


class EventLog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = os.path.join(folder.name, "log.csv")

    def test_a_replay_that_was_logged_replays_from_its_log_with_the_same_events_and_peak(self):
        for trace in (["--generate", "dataframe"], ["--generate", "train"]):
            with self.subTest(trace[-1]):
                first = answer("replay", *trace, "--plugin", "pool",
                               EMM_EVENT_LOG=self.log)["results"][0]
                second = answer("replay", self.log, "--plugin", "passthrough")["results"][0]
                told = answer("events", self.log)
                self.assertEqual((second["failed"], second["leaked"]), (0, 0))
                self.assertEqual(second["peak_live_bytes"], first["peak_live_bytes"])
                self.assertEqual(told["allocations"], told["frees"])
                left = second["events"] - first["events"]  # freed at the end of the first replay
                self.assertGreaterEqual(left, 0)
                self.assertEqual(told["peak_live_bytes"], first["peak_live_bytes"])

    def test_a_trace_that_frees_all_has_as_many_events_in_its_log(self):
        with Trace(ACROSS_THREADS) as trace:
            first = answer("replay", trace, "--plugin", "pool",
                           EMM_EVENT_LOG=self.log)["results"][0]
        subprocess.run(["gzip", self.log], check=True)
        second = answer("replay", self.log + ".gz", "--plugin", "pool")["results"][0]
        self.assertEqual((second["events"], second["peak_live_bytes"], second["failed"]),
                         (first["events"], first["peak_live_bytes"], 0))

    def test_calls_without_a_stream_are_replayed_without_one(self):
        with open(self.log, "w", encoding="utf-8") as file:
            file.write(LOG_HEADER + "\n")
            for call, address, stream in (("Alloc", 1, "-1"), ("Alloc", 2, "0x0"), ("Free", 1, "-1"), ("Free", 2, "0x0")):
                file.write(f"{call},0,0x{address}000,{stream},4096,0,0,0,0.0,0.0,0.0,x\n")
        again = self.log + ".again"
        result = answer("replay", self.log, "--touch", "--plugin", "passthrough", EMM_EVENT_LOG=again)["results"][0]
        self.assertEqual((result["failed"], result["early_handovers"]), (0, 0))
        with open(again, encoding="utf-8") as file:
            calls = [line.split(",") for line in file if line.startswith(("Alloc", "Free"))]
        self.assertEqual([(call[0], call[3] == "-1") for call in calls],
                         [("Alloc", True), ("Alloc", False), ("Free", True), ("Free", False)])

    def test_plugins_that_overwrite_each_others_log_are_warned_of(self):
        plugins = ("--plugin", "passthrough", "--plugin", "async")
        with Trace(PAIR_OF_BLOCKS) as trace:
            shared = run("replay", trace, *plugins, EMM_EVENT_LOG=self.log)
            apart = run("replay", trace, *plugins, EMM_EVENT_LOG=self.log + ".%p")
            alone = run("replay", trace, *plugins[:2], EMM_EVENT_LOG=self.log)
        self.assertEqual([done.returncode for done in (shared, apart, alone)], [0, 0, 0])
        self.assertRegex(shared.stderr, "only the last plugin's events remain; put %p into the name")
        self.assertEqual((apart.stderr, alone.stderr), ("", ""))
        self.assertEqual(len(os.listdir(os.path.dirname(self.log))), 3)

    def test_the_log_of_a_plugin_that_crashed_is_completed(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            run("replay", trace, "--plugin", fixture("crashing"), EMM_EVENT_LOG=self.log)
        self.assertTrue(os.path.exists(self.log + ".spool"))
        told = answer("events", self.log)
        self.assertTrue(told["completed"])
        self.assertFalse(os.path.exists(self.log + ".spool"))
        self.assertFalse(answer("events", self.log)["completed"])
        self.assertIn(f"{self.log}: was complete, nothing to do;", run("events", self.log).stdout)

    def test_a_log_that_is_being_written_can_be_read_as_a_copy(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            run("replay", trace, "--plugin", fixture("crashing"), EMM_EVENT_LOG=self.log)
        with open(self.log + ".spool", "r+b") as spool:
            fcntl.lockf(spool, fcntl.LOCK_EX)  # as its writer does
            error = answer("events", self.log, status=2)["error"]
        self.assertRegex(error["message"], r"\.spool is being written by process \d+")
        self.assertIn("A copy of the log can be read now", error["hint"])
        copied = answer("events", shutil.copy(self.log, self.log + ".copy"))
        self.assertFalse(copied["completed"])

    def test_a_file_that_unpacks_to_a_huge_line_is_refused_at_that_line(self):
        with gzip.open(self.log + ".gz", "wb") as file:
            file.write(LOG_HEADER.encode() + b"\n")
            for _ in range(256):
                file.write(bytes(1 << 20))
        for command in "events", "replay":
            error = answer(command, self.log + ".gz", status=2)["error"]
            self.assertIn("line 2: expected a line of at most 65536 bytes", error["message"])

    @unittest.skipIf("address" in SANITIZERS or "thread" in SANITIZERS,
                     "sanitizers need more memory")
    def test_a_log_that_is_too_large_for_the_memory_is_told_in_a_sentence(self):
        with open(self.log, "w", encoding="utf-8") as file:
            file.write(LOG_HEADER + "\n")
            for _ in range(2_000_000):
                file.write("Trim,0,0x0,-1,0,0,0,0,0.0,0.0,0.0,x\n")
        for command in ("events", self.log), ("replay", self.log, "--plugin", "passthrough"):
            done = run(*command, data_limit=40 << 20)
            self.assertEqual((done.returncode, done.stderr), (1, "emm: out of memory\n"))
            error = answer(*command, status=1, data_limit=40 << 20)["error"]
            self.assertEqual((error["code"], error["message"]), (-3, "out of memory"))

    def test_a_fifo_is_not_waited_for(self):
        for path in self.log, self.log + ".spool":
            with self.subTest(path):
                os.mkfifo(path)
                for command in "events", "replay":
                    error = answer(command, self.log, status=2)["error"]
                    self.assertRegex(error["message"], f"{path}(:| is).*FIFO")
                os.unlink(path)

    def test_a_log_that_is_not_there_is_wrong_usage(self):
        self.assertEqual(answer("events", self.log, status=2)["error"]["stage"], "trace")


class Bench(unittest.TestCase):
    def test_it_answers_with_the_documented_keys(self):
        told = answer("bench", "--plugin", "passthrough", "--case", "pair,host")
        self.assertEqual(list(told), ["driver", "results"])
        for result in told["results"]:
            self.assertEqual(list(result), ["plugin", "case", "threads", "size", "ns_per_pair",
                                            "mpairs_per_s"])
            self.assertGreater(result["ns_per_pair"], 0)
        self.assertEqual({(r["plugin"], r["case"], r["size"]) for r in told["results"]
                          if r["plugin"] != "mimalloc"},
                         {("passthrough", "pair", 256), ("malloc", "pair", 256),
                          ("passthrough", "host", 4096)})

    def test_unordered_pairs_tell_their_driver_calls_and_other_cases_do_not(self):
        told = answer("bench", "--plugin", "passthrough", "--plugin", "pool",
                      "--case", "pair,pair_unordered,pair_busy")
        calls = {(r["plugin"], r["case"]): r.get("driver_calls_per_pair") for r in told["results"]}
        self.assertGreaterEqual(calls["passthrough", "pair_unordered"], 2)
        self.assertGreaterEqual(calls["passthrough", "pair_busy"], 2)
        self.assertLess(calls["pool", "pair_unordered"], 1)
        self.assertIsNone(calls["pool", "pair"])

    def test_the_case_logged_records_its_events(self):
        done = run("bench", "--case", "logged")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("not recorded", done.stderr)

    def test_the_case_logged_fails_alone_where_its_log_has_no_place(self):
        told = answer("bench", "--case", "logged,vtable", status=1, TMPDIR="/nowhere")["results"]
        errors = {result["plugin"]: result["error"]["message"] for result in told if "error" in result}
        self.assertEqual(list(errors), ["empty, logged"])
        self.assertIn("cannot make a folder in /nowhere for the event log: No such file or directory", *errors.values())
        self.assertIn("vtable", [result.get("case") for result in told])

    def test_a_signal_leaves_nothing_of_the_log_of_the_case_logged(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as folder, \
                 subprocess.Popen([EMM, "bench", "--case", "logged"], env={**os.environ, "TMPDIR": folder},
                                  stdout=subprocess.DEVNULL) as program:
                while not list(pathlib.Path(folder).glob("*/log.csv")):
                    self.assertIsNone(program.poll())
                program.send_signal(number)
                self.assertEqual((program.wait(timeout=60), os.listdir(folder)), (-number, []))

    def test_what_tracking_costs_is_told_beside_the_cases_without(self):
        done = run("bench", "--case", "vtable,tracked,tracked_stack")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"an allocation tracked by EMM_TRACK=module costs -?[0-9.]+ ns, its free included")
        self.assertIn("EMM_TRACK=stack costs", done.stdout)

    def test_the_empty_plugin_is_called_directly_and_through_emm(self):
        told = answer("bench", "--case", "bare,vtable")
        self.assertEqual([(r["plugin"], r["case"]) for r in told["results"]],
                         [("empty", "bare"), ("empty", "vtable")])

    def test_threads_and_sizes_make_a_result_each(self):
        told = answer("bench", "--plugin", "passthrough", "--case", "pair_raw,counter",
                      "--threads", "1,2", "--size", "64KiB,1MiB")
        self.assertEqual([(r["case"], r["threads"], r["size"]) for r in told["results"]],
                         [("pair_raw", 1, 65536), ("pair_raw", 1, 1048576), ("counter", 1, 0),
                          ("pair_raw", 2, 65536), ("pair_raw", 2, 1048576), ("counter", 2, 0)])

    def test_every_case_runs_on_a_plugin(self):
        told = answer("bench", "--plugin", "async")
        cases = {result["case"] for result in told["results"]}
        self.assertEqual(cases, {"bare", "vtable", "clock", "logged", "tracked", "tracked_stack", "pair",
                                 "pair_null", "pair_raw", "pair_unordered", "pair_busy", "pair_current", "handle", "mixed",
                                 "holes", "large", "idle", "host", "cross", "counter"})
        self.assertEqual([r for r in told["results"] if "error" in r], [])

    def test_references_that_would_say_nothing_are_left_out_by_name(self):
        done = run("bench", "--plugin", "passthrough", "--case", "pair")
        self.assertRegex(done.stderr, "not measured: cuMemAlloc: the driver is simulated")

    def test_an_unknown_case_is_wrong_usage_and_the_known_ones_are_listed(self):
        done = run("bench", "--case", "pear")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "pair_unordered.*'pear'")

    def test_a_plugin_that_does_not_load_is_told_as_one_error_object(self):
        told = answer("bench", "--plugin", "pol", "--case", "pair", status=1)
        self.assertEqual(list(told["error"]), ERROR_KEYS)

    def test_beside_others_it_is_one_result_with_an_error(self):
        told = answer("bench", "--plugin", "pol", "--plugin", "passthrough", "--case", "host",
                      status=1)
        self.assertEqual([list(r)[:2] for r in told["results"]],
                         [["plugin", "error"], ["plugin", "case"]])

    def test_a_plugin_that_crashes_is_one_result_with_an_error(self):
        told = answer("bench", "--plugin", fixture("crashing"), "--case", "pair", status=1)
        crashed = [r for r in told["results"] if "error" in r]
        self.assertEqual([r["plugin"] for r in crashed], [fixture("crashing")])
        self.assertTrue(any(r["plugin"] == "malloc" for r in told["results"]))


if __name__ == "__main__":
    unittest.main()
