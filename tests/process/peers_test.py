#!/usr/bin/env python3
"""peers_test.py RUN BUILD: tools/peers without a GPU."""
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
import peers  # noqa: E402
import plot  # noqa: E402
import table  # noqa: E402
from plan import ALLOCATORS, Case  # noqa: E402

NAMES = [allocator.name for allocator in ALLOCATORS]
EMM = [name for name in NAMES if name.startswith("emm ")]


def rows_of(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class WithoutAGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        cls.done = subprocess.run([RUN, "--build", BUILD, "--out", cls.out, "--quick"],
                                  env={**os.environ, "EMM_DRIVER": "sim"}, capture_output=True,
                                  text=True, check=False)
        cls.rows = rows_of(cls.done.stdout)

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
                self.assertEqual(measured, "multi-stream" not in cells["case"], (row[0], name))
            for name in NAMES:
                self.assertEqual(cells[name] == "needs a GPU", name not in EMM, (row[0], name))

    def test_the_answers_are_kept_as_json(self):
        report = json.loads((self.out / "peers.json").read_text())
        self.assertEqual(report["device"], "simulated driver")
        replayed = {r["allocator"]: r for r in report["results"] if r["unit"] == "reserved / live"}
        for name in EMM:
            self.assertGreaterEqual(replayed[name]["value"], 1.0)
            self.assertEqual(replayed[name]["peak_live_bytes"], replayed[EMM[0]]["peak_live_bytes"])

    def test_the_plots_are_well_formed_and_have_a_line_for_each_allocator(self):
        for name, least in (("threads.svg", len(EMM)), ("reserved.svg", 3)):
            root = xml.parse(self.out / name).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            self.assertGreaterEqual(len(root.findall("{*}polyline")), least, name)


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
        self.case = Case("a case", "ns a pair", ["bench"], lambda answer: answer["ns_per_pair"])

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

    def test_a_name_with_markup_in_it_stays_a_name(self):
        drawing = plot.lines("a < b", "x & y", "z", [("<c>", [(1, 2), (2, 3)])])
        self.assertIn("<c>", "".join(xml.fromstring(drawing).itertext()))

    def test_the_ticks_of_a_plot_are_round_numbers_that_enclose_its_points(self):
        self.assertEqual(plot.Axis([0, 2402], 0, 1, False).ticks(), [0, 1000, 2000, 3000])
        self.assertEqual(plot.Axis([0, 70], 0, 1, False).ticks(), [0, 20, 40, 60, 80])
        self.assertEqual(plot.Axis([5, 5], 0, 1, False).ticks(), [5, 6])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
