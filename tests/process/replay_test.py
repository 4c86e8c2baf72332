#!/usr/bin/env python3
"""`emm replay` as its users meet it: each test's name is the sentence that it proves."""
import pathlib
import re
import tempfile
import time
import unittest

from emm_program import ACROSS_THREADS, ERROR_KEYS, FIXTURES, PAIR_OF_BLOCKS, Trace, answer, fixture, run

TRACES = pathlib.Path(__file__).resolve().parents[1] / "traces"
RESULT_KEYS = ["plugin", "events", "failed", "peak_live_bytes", "peak_reserved_bytes", "leaked",
               "early_handovers", "driver_calls", "driver_calls_second_half", "ns_per_event"]
# Stream 0 frees a block, and stream 1 asks for one as large while stream 0's work is pending.
ACROSS_STREAMS = [row for i in range(0, 400, 2) for row in
                  (f"0,0,alloc,{i},4096", f"0,0,free,{i},4096",
                   f"0,1,alloc,{i + 1},4096", f"0,1,free,{i + 1},4096")]


class Replay(unittest.TestCase):
    def test_it_answers_with_the_documented_keys(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            told = answer("replay", trace, "--plugin", "passthrough", "--plugin", "async")
        self.assertEqual(list(told), ["driver", "trace", "order", "results"])
        self.assertEqual((told["trace"], told["order"]), (trace, "strict"))
        self.assertTrue(told["driver"]["simulated"])
        for result, plugin in zip(told["results"], ["passthrough", "async"], strict=True):
            self.assertEqual(list(result), RESULT_KEYS)
            self.assertEqual(list(result["ns_per_event"]), ["mean", "p50", "p99", "p999"])
            self.assertEqual((result["plugin"], result["events"], result["failed"]), (plugin, 4, 0))
            self.assertEqual((result["leaked"], result["early_handovers"]), (0, 0))
            self.assertEqual(result["peak_live_bytes"], 5000)
            self.assertGreaterEqual(result["peak_reserved_bytes"], 5000)

    def test_spilled_memory_is_reserved_too(self):
        rows = [f"0,0,alloc,{i},{1 << 20}" for i in range(14)]
        with Trace(rows) as trace:
            result = answer("replay", trace, "--plugin", "pool:max=8MiB,spill=64MiB")["results"][0]
        self.assertGreaterEqual(result["peak_reserved_bytes"], 14 << 20)

    def test_beside_neighbours_that_keep_the_driver_busy_the_pool_moves_less_and_takes_more(self):
        quiet, busy = (answer("replay", str(TRACES / "train_gpt.csv.gz"), "--warm", "--plugin", "pool",
                              EMM_SIM=f"memory=80GiB{latency}")["results"][0]
                       for latency in ("", ",latency=cuMemSetAccess:10000"))
        self.assertLess(busy["driver_calls_second_half"], 0.75 * quiet["driver_calls_second_half"])
        self.assertGreater(busy["peak_reserved_bytes"], quiet["peak_reserved_bytes"])
        self.assertLess(busy["peak_reserved_bytes"], 1.13 * busy["peak_live_bytes"])

    def test_what_a_library_of_others_reserves_is_not_known(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            spec = f"pluggable:lib={FIXTURES}/libplain-pair.so,alloc=my_alloc,free=my_free"
            self.assertIsNone(answer("replay", trace, "--plugin", spec)["results"][0]["peak_reserved_bytes"])
            self.assertRegex(run("replay", trace, "--plugin", spec).stdout, r"4\.9 KiB +- +- ")

    def test_driver_calls_are_those_of_the_plugin_and_not_of_the_tool(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            calls = answer("replay", trace, "--plugin", "passthrough",
                           "--touch")["results"][0]["driver_calls"]
        self.assertEqual((calls["cuMemAlloc"], calls["cuMemFree"]), (2, 2))
        self.assertNotIn("cuMemsetD32Async", calls)
        self.assertNotIn("cuStreamCreate", calls)

    def test_the_second_half_begins_with_the_event_in_the_middle(self):
        rows = [f"0,0,alloc,{i},1000" for i in range(10)] + [f"0,0,mark,{i},0" for i in range(10)]
        with Trace(rows) as trace:
            result = answer("replay", trace, "--plugin", "passthrough")["results"][0]
        self.assertEqual(result["driver_calls"]["cuMemAlloc"], 10)
        self.assertEqual(result["driver_calls_second_half"], 0)

    def test_blocks_that_the_trace_never_frees_are_no_leak(self):
        with Trace(["0,0,alloc,1,70000", "0,0,defer_begin,-1,0", "0,0,alloc,2,9"]) as trace:
            for result in answer("replay", trace, "--plugin", "passthrough", "--plugin",
                                 "async")["results"]:
                self.assertEqual((result["leaked"], result["failed"]), (0, 0))

    def test_what_a_plugin_keeps_after_its_context_was_retired_is_a_leak(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            result = answer("replay", trace, "--plugin", fixture("leaking"), status=1)["results"][0]
        self.assertEqual(result["leaked"], 1024 + 8192)

    def test_calls_that_fail_are_counted_and_the_first_is_explained(self):
        with Trace(["0,0,alloc,1,1000", "0,0,alloc,2,99000000", "0,0,free,2,99000000",
                    "0,0,alloc,3,88000000"]) as trace:
            arguments = ("replay", trace, "--plugin", "passthrough")
            self.assertEqual(answer(*arguments, status=1,
                                    EMM_SIM="memory=64MiB")["results"][0]["failed"], 2)
            told = run(*arguments, EMM_SIM="memory=64MiB").stderr
        self.assertRegex(told, "event 2, alloc of 99000000 bytes: .+")

    def test_the_option_outranks_the_environment(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            told = answer("replay", trace, "--plugin", "async", EMM_PLUGIN="passthrough")
            self.assertIn("cuMemAllocFromPoolAsync", told["results"][0]["driver_calls"])
            told = answer("replay", trace, EMM_PLUGIN="async")
            self.assertEqual(told["results"][0]["plugin"], "async")
            self.assertEqual(answer("replay", trace)["results"][0]["plugin"], "passthrough")

    def test_a_plugin_that_does_not_load_is_told_as_one_error_object(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            told = answer("replay", trace, "--plugin", fixture("major-2"), status=1)
        self.assertEqual(list(told), ["error"])
        self.assertEqual(list(told["error"]), ERROR_KEYS)
        self.assertEqual(told["error"]["path"], fixture("major-2"))

    def test_a_driver_that_is_missing_is_told_once_and_not_for_each_plugin(self):
        for command in (["replay", "--generate", "overlap"], ["bench", "--case", "pair"]):
            done = run(*command, "--plugin", "pool", "--plugin", "async", EMM_DRIVER="/nowhere/libcuda.so.1")
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("no CUDA driver")), (1, "", 1), done)

    def test_a_plugin_that_crashes_takes_nothing_else_with_it(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            told = answer("replay", trace, "--plugin", fixture("crashing"), "--plugin",
                          "passthrough", status=1)
        crashed, good = told["results"]
        self.assertEqual(list(crashed), ["plugin", "error"])
        self.assertIn("signal 6", crashed["error"]["message"])
        self.assertEqual((good["plugin"], good["failed"]), ("passthrough", 0))

    def test_a_warm_replay_tells_the_second_time_of_a_plugin_that_keeps_its_memory(self):
        rows = [f"0,0,alloc,{i},3000000" for i in range(5)] + [f"0,0,free,{i},3000000" for i in range(4)]
        with Trace(rows) as trace:
            cold, warm = ({r["plugin"]: r for r in answer(
                "replay", trace, *more, "--plugin", "passthrough", "--plugin", "pool")["results"]}
                          for more in ((), ("--warm",)))
        for result in warm.values():
            self.assertEqual((result["events"], result["failed"], result["leaked"]), (9, 0, 0))
        for plugin, times in {"passthrough": 2, "pool": 1}.items():
            self.assertEqual(warm[plugin]["driver_calls"]["cuMemAlloc"],
                             times * cold[plugin]["driver_calls"]["cuMemAlloc"], plugin)

    def test_a_paced_replay_keeps_the_times_between_calls_and_tells_the_share_of_emms_calls(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
            trace.write("time,thread,stream,op,id,size\n0,0,0,alloc,1,4096\n0,1,1,alloc,2,9\n"
                        "100000,0,0,free,1,4096\n300000,1,1,free,2,9\n")
            trace.flush()
            arguments = ("replay", trace.name, "--plugin", "pool")
            for pace, seconds in ((["--pace"], 0.3), (["--pace", "2"], 0.6)):
                began = time.monotonic()
                told = answer(*arguments, *pace)
                self.assertGreater(time.monotonic() - began, seconds)
                result = told["results"][0]
                self.assertEqual((told["pace"], list(result)), (seconds / 0.3, [*RESULT_KEYS, "share_of_time"]))
                self.assertTrue(0 < result["share_of_time"] < 1, result)
            self.assertRegex(run(*arguments, "--pace").stdout, "strict order, pace 1\n\n.* share of time *\n")
            # Only the work on the streams is refused; the plugin makes no such call.
            refused = run(*arguments, "--pace", EMM_SIM="fail=cuLaunchHostFunc@2")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("simcuda_work, called by the tool, failed", refused.stderr)
            self.assertEqual(run(*arguments, EMM_SIM="fail=cuLaunchHostFunc@1").returncode, 0)
            free = run(*arguments, "--pace", "--order", "free")
            self.assertEqual(free.returncode, 2)
            self.assertIn("expected --order strict with --pace, found free", free.stderr)
            self.assertIn("--pace: expected a number above 0, found '0'", run(*arguments, "--pace", "0").stderr)

    def test_the_replay_that_is_recommended_finds_a_plugin_that_ignores_streams(self):
        readme = pathlib.Path(__file__).resolve().parents[2] / "plugins/README.md"
        text = readme.read_text(encoding="utf-8") + run("--help").stdout + run("replay", "--help").stdout
        recommended = set(re.findall("emm replay --generate ([a-z]+) --touch", text))
        self.assertEqual(len(recommended), 1)
        told = answer("replay", "--generate", *recommended, "--touch", "--plugin", fixture("careless"),
                      EMM_SIM="progress=lazy", status=1)["results"][0]
        self.assertGreater(told["early_handovers"], 100)  # train: 6

    def test_memory_handed_to_another_stream_too_early_is_found_by_touching_it(self):
        with Trace(ACROSS_STREAMS) as trace:
            arguments = ("replay", trace, "--plugin", fixture("careless"))
            untouched = answer(*arguments, EMM_SIM="progress=lazy")["results"][0]
            touched = answer(*arguments, "--touch", EMM_SIM="progress=lazy", status=1)["results"][0]
            done = run(*arguments, "--touch", EMM_SIM="progress=lazy")
        self.assertEqual(untouched["early_handovers"], 0)
        self.assertGreater(touched["early_handovers"], 0)
        self.assertIn("early hand-over", done.stderr)

    def test_plugins_that_keep_the_promise_are_found_good_whenever_work_runs(self):
        for rows in (ACROSS_STREAMS, ACROSS_THREADS):
            for progress in ("eager", "lazy", "random"):
                with self.subTest(progress), Trace(rows) as trace:
                    told = answer("replay", trace, "--touch", "--plugin", "passthrough",
                                  "--plugin", "async", EMM_SIM=f"progress={progress}")
                    self.assertEqual([r["early_handovers"] for r in told["results"]], [0, 0])

    def test_threads_on_their_own_wait_for_the_blocks_that_they_free(self):
        with Trace(ACROSS_THREADS) as trace:
            told = answer("replay", trace, "--order", "free", "--touch", "--plugin", "passthrough")
        result = told["results"][0]
        self.assertEqual(told["order"], "free")
        self.assertEqual((result["events"], result["failed"], result["leaked"]), (600, 0, 0))
        self.assertEqual(result["early_handovers"], 0)

    def test_a_workload_of_its_own_needs_no_file(self):
        told = answer("replay", "--generate", "arrays", "--seed", "3", "--plugin", "passthrough")
        self.assertEqual(told["trace"], "arrays:seed=3")
        self.assertGreater(told["results"][0]["events"], 8000)

    def test_a_slow_stretch_is_progress_and_a_call_that_waits_for_longer_is_none(self):
        slow = {"EMM_SIM": "latency=cuMemAlloc:2000000"}
        with Trace([f"0,0,alloc,{i},1000" for i in range(5)]) as trace:
            told = answer("replay", trace, "--plugin", "passthrough", "--limit", "6", **slow)
            self.assertEqual(told["results"][0]["events"], 5)
            error = answer("replay", trace, "--plugin", "passthrough", "--limit", "0.2", status=1,
                           **slow)["error"]
        self.assertIn("silent for 0.2 s", error["message"])

    def test_a_trace_that_cannot_be_read_is_wrong_usage_and_one_error_object(self):
        with Trace(["0,0,free,1,9"]) as trace:
            error = answer("replay", trace, status=2)["error"]
        self.assertEqual(list(error), ERROR_KEYS)
        self.assertEqual((error["stage"], error["path"]), ("trace", trace))
        self.assertIn("line 2", error["message"])

    def test_people_get_a_table_and_nothing_on_standard_error(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            done = run("replay", trace, "--plugin", "passthrough")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("SIMULATED", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^passthrough +4 +0 +4\.9 KiB ")

    def test_a_trace_may_come_after_the_plugin(self):
        with Trace(PAIR_OF_BLOCKS) as trace:
            self.assertEqual(run("replay", "--plugin", "passthrough", trace).returncode, 0)

    def test_no_ratio_is_told_if_an_allocation_failed(self):
        done = run("replay", "--generate", "train", "--plugin", "pool:max=2MiB")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^pool:max=2MiB( +\S+ [KMG]iB| +\d+)+ +- ")


if __name__ == "__main__":
    unittest.main()
