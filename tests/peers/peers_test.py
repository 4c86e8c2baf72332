#!/usr/bin/env python3
"""peers_test.py RUN BUILD: tests/peers without a GPU."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

RUN, BUILD = map(pathlib.Path, sys.argv[1:3])
sys.path.insert(0, str(RUN.parent))
sys.dont_write_bytecode = True
import families  # noqa: E402
import peers  # noqa: E402
import plot  # noqa: E402
import table  # noqa: E402
import plan  # noqa: E402
from plan import ALLOCATORS, Case, Figure  # noqa: E402

NAMES = [allocator.name for allocator in ALLOCATORS]
EMM = [name for name in NAMES if name.startswith("emm ")]


TRACE = """time,thread,stream,op,id,size
0,0,0,mark,0,0
0,0,0,alloc,7,3145728
1,0,1,alloc,8,1048576
2,0,0,defer_begin,0,0
3,0,0,free,7,3145728
4,0,0,defer_end,0,0
5,0,0,alloc,9,512
"""


def run_in(folder, *arguments, **environment):
    return subprocess.run([RUN, "--build", BUILD, "--out", folder, "--quick", *arguments],
                          env={**os.environ, "EMM_DRIVER": "sim", "EMM_TEST_TRACES": "",
                               **environment}, capture_output=True, text=True, check=False)


def rows_of(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class WithoutAGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        cls.done = run_in(cls.out)
        cls.rows = rows_of(cls.done.stdout)
        cls.report = json.loads((cls.out / "peers.json").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_run_succeeds_and_keeps_what_it_prints(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.assertEqual((self.out / "peers.md").read_text(), self.done.stdout)

    def test_every_allocator_has_a_cell_in_every_row(self):
        self.assertEqual(self.rows[0], ["case", "unit", *NAMES])
        self.assertGreater(len(self.rows), 8)
        for row in self.rows:
            self.assertEqual(len(row), len(NAMES) + 2, row)
            self.assertTrue(all(row), row)

    def test_emm_is_measured_and_every_other_allocator_is_said_to_need_a_gpu(self):
        for row in self.rows[2:]:
            cells = dict(zip(self.rows[0], row))
            for name in EMM:
                measured = cells[name][0].isdigit()
                expected = "multi-stream" not in cells["case"] and (
                    "max =" not in cells["unit"] or name.startswith("emm pool"))
                self.assertEqual(measured, expected, (row[:2], name))
            for name in NAMES:
                self.assertEqual(cells[name] == "needs a GPU", name not in EMM, (row[0], name))

    def test_the_answers_are_kept_as_json(self):
        self.assertEqual(self.report["device"], "simulated driver")
        replayed = self.results("reserved / live")
        for name in EMM:
            self.assertGreaterEqual(replayed[name]["value"], 1.0)
            self.assertEqual(replayed[name]["peak_live_bytes"], replayed[EMM[0]]["peak_live_bytes"])

    def results(self, unit, case=""):
        return {r["allocator"]: r for r in self.report["results"]
                if r["unit"] == unit and case in r["case"]}

    def test_each_growth_of_the_pool_has_a_column_that_names_it(self):
        self.assertLessEqual({"emm pool", "emm pool:growth=segment", "emm pool:growth=vmm"},
                             set(self.rows[0]))

    def test_an_allocator_that_keeps_nothing_asks_the_driver_in_every_event(self):
        events = plan.events_of(RUN.parent.parent.parent / "tests/traces/train_gpt.csv.gz")
        calls = self.results("driver calls, second half of the first pass")
        half = events.count("\n") / 2
        self.assertGreaterEqual(calls["emm passthrough"]["value"], half)
        self.assertLess(calls["emm pool"]["value"], half / 10)
        again = self.results(plan.SECOND_PASS_CALLS)
        self.assertGreaterEqual(again["emm passthrough"]["value"], 2 * half)
        self.assertLess(again["emm pool"]["value"], half / 10)

    def test_the_time_in_the_driver_is_told_for_every_plugin(self):
        for name, result in self.results("ms in the driver, first pass").items():
            self.assertEqual("value" in result, name in EMM)

    def test_the_driver_calls_of_unordered_pairs_are_counted_idle_and_busy(self):
        for beside in ("KiB", "beside work"):
            calls = self.results("driver calls a pair", beside)
            self.assertGreaterEqual(calls["emm passthrough"]["value"], 2)
            self.assertLess(calls["emm pool"]["value"], calls["emm passthrough"]["value"])

    def test_the_plots_are_well_formed_and_have_a_line_for_each_allocator(self):
        for name, least in (("threads.svg", len(EMM)), ("reserved.svg", 3)):
            root = xml.parse(self.out / name).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            self.assertGreaterEqual(len(root.findall("{*}polyline")), least, name)


class Traces(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.traces = pathlib.Path(self.folder.name) / "traces"
        self.traces.mkdir()

    def test_further_recordings_are_replayed_beside_the_own_ones(self):
        (self.traces / "some.program.csv").write_text(TRACE)
        done = run_in(self.folder.name, "--only", "emm pool", EMM_TEST_TRACES=str(self.traces))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        units = {name: [row[1] for row in rows_of(done.stdout) if row[0] == name]
                 for name in ("train_gpt", "some.program")}
        self.assertEqual(len(units["some.program"]), 8)
        self.assertEqual(units["some.program"], units["train_gpt"])

    def test_a_folder_without_recordings_is_wrong_usage(self):
        done = run_in(self.folder.name, EMM_TEST_TRACES=str(self.traces))
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"no recording (*.csv, *.csv.gz) is in {self.traces}", done.stderr)

    def test_only_allocations_and_frees_become_events(self):
        trace = self.traces / "a.csv"
        trace.write_text(TRACE)
        events = plan.events_of(trace)
        self.assertEqual(events, "+ 0 0 3145728\n+ 1 1 1048576\n- 0 0 3145728\n+ 0 2 512\n")
        self.assertEqual(plan.peak_live(events), 4 << 20)

    def test_the_limit_is_whole_pages_and_never_less_than_asked_for(self):
        page = 2 << 20
        self.assertEqual(plan.limit_of(1), page)
        self.assertEqual(plan.limit_of(100 * page), 102 * page)
        self.assertEqual(plan.limit_of(100 * page + 1), 103 * page)

    def test_a_limit_joins_the_settings_of_the_pool_and_no_other_plugin_has_one(self):
        trace = self.traces / "a.csv"
        trace.write_text(TRACE)
        limited = plan.recording_cases("a", trace)[-1].tool
        self.assertIn("pool:max=6291456", limited("pool"))
        self.assertIn("pool:growth=vmm,max=6291456", limited("pool:growth=vmm"))
        self.assertIsNone(limited("async"))


class Programs(unittest.TestCase):
    def test_a_peers_program_needs_no_more_than_the_folders_and_files_that_each_is_compiled_with(self):
        with tempfile.TemporaryDirectory() as folder:
            try:
                command = families.compile_peer("cuda", [], [], pathlib.Path(folder))
            except families.Missing as missing:
                if "Toolkit" in missing.detail:
                    self.skipTest(missing.detail)
                self.fail(missing.detail)
            done = subprocess.run([*command, "cuMemAlloc", "replay"], capture_output=True, text=True, check=False)
            self.assertIn("error", json.loads(done.stdout))

    def replayed(self, *arguments, events="+ 0 0 1048576\n- 0 0 1048576\n"):
        done = subprocess.run([BUILD / "tests/peers/peer-emm", "pool", *arguments], input=events, text=True, check=True,
                              capture_output=True, env={**os.environ, "EMM_DRIVER": "sim", "EMM_PLUGIN": "pool"})
        return json.loads(done.stdout)

    def test_what_is_reserved_over_all_rounds_is_no_less_than_in_the_first(self):
        told = self.replayed("replay", "16")
        self.assertGreaterEqual(told["peak_reserved_bytes_all_rounds"], told["peak_reserved_bytes"])
        self.assertGreaterEqual(told["peak_reserved_bytes"], told["peak_live_bytes"])

    def test_a_device_is_filled_twice_and_nothing_more_fits(self):
        told = self.replayed("fill", "1")
        for live in (told["live_bytes_fresh"], told["live_bytes"]):
            self.assertLessEqual(live, told["free_bytes"])
            self.assertGreater(live, told["free_bytes"] * 0.9)


class Only(unittest.TestCase):
    def test_a_name_that_no_column_has_is_wrong_usage_and_the_names_are_told(self):
        done = subprocess.run([RUN, "--only", "RMM pol"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("RMM pool", done.stderr)


class Answers(unittest.TestCase):
    def setUp(self):
        self.run = peers.Run.__new__(peers.Run)
        self.run.gpu, self.run.timeout, self.run.missing = "a GPU", 30, {}
        figures = [Figure("ns a pair", lambda answer: answer["ns_per_pair"])]
        self.case = Case("a case", figures, ["bench"])

    def ask(self, program):
        self.run.commands = {"cuda": [sys.executable, "-c", program]}
        allocator = next(a for a in ALLOCATORS if a.family == "cuda")
        return self.run.cell(self.case, allocator)[0]

    def test_a_peer_that_crashes_is_failed_with_its_last_words(self):
        result = self.ask("import os, sys; print('no such thing', file=sys.stderr); os.abort()")
        self.assertIn("no such thing", result["error"])
        self.assertEqual(table.cell(result), "failed")
        told = table.notes([result, {**result, "case": "another"}])
        self.assertEqual(len(told), 1)
        self.assertIn("cuMemAlloc, a case, another: ended with status -6: no such thing", told[0])

    def test_a_figure_is_told_with_its_ratio(self):
        result = self.ask("print('{\"ns_per_pair\": 650.4}')")
        reference = {**result, "allocator": peers.REFERENCE, "value": 32.5}
        peers.add_ratios([reference, result])
        self.assertEqual(table.cell(result), "650 (20x)")
        self.assertEqual(table.cell(reference), "32.5")

    def test_a_count_is_told_whole_and_without_a_ratio(self):
        result = {"allocator": "emm async", "case": "a case", "unit": "driver calls", "value": 1234}
        peers.add_ratios([{**result, "allocator": peers.REFERENCE, "value": 2}, result])
        self.assertEqual(table.cell(result), "1,234")

    def test_where_the_driver_cannot_be_metered_a_dash_stands_and_a_line_says_why(self):
        self.run.missing["meter"] = {"absent": "-", "detail": "no meter"}
        self.case.metered = True
        result = self.ask("raise SystemExit('not to be run')")
        self.assertEqual(table.cell(result), "-")
        self.assertEqual(table.notes([result]), ["- cuMemAlloc: no meter"])

    def test_a_tool_that_was_not_built_is_failed_with_its_path(self):
        self.run.tool = pathlib.Path("/no/such/emm")
        self.case.tool = lambda spec: ["bench"]
        allocator = next(a for a in ALLOCATORS if a.family == "emm")
        self.assertRegex(self.run.cell(self.case, allocator)[0]["error"], "did not start.*no/such")

    def test_a_plugin_that_fails_in_the_tool_is_failed_with_its_message(self):
        self.run.tool = pathlib.Path(sys.executable)
        self.case.tool = lambda spec: [
            "-c", "print('{\"results\": [{\"error\": {\"message\": \"no such plugin\"}}]}')"]
        allocator = next(a for a in ALLOCATORS if a.family == "emm")
        self.assertEqual(self.run.cell(self.case, allocator)[0]["error"], "no such plugin")
        other = next(a for a in ALLOCATORS if a.family == "cuda")
        self.assertEqual(table.cell(self.run.cell(self.case, other)[0]), "not applicable")

    def test_a_name_with_markup_in_it_stays_a_name(self):
        drawing = plot.lines("a < b", "x & y", "z", [("<c>", [(1, 2), (2, 3)])])
        self.assertIn("<c>", "".join(xml.fromstring(drawing).itertext()))

    def test_the_ticks_of_a_plot_are_round_numbers_that_enclose_its_points(self):
        self.assertEqual(plot.Axis([0, 2402], 0, 1, False).ticks(), [0, 1000, 2000, 3000])
        self.assertEqual(plot.Axis([0, 70], 0, 1, False).ticks(), [0, 20, 40, 60, 80])
        self.assertEqual(plot.Axis([5, 5], 0, 1, False).ticks(), [5, 6])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
