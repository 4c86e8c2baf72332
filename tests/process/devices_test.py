#!/usr/bin/env python3
"""A program on two devices, as `emm top` and `emm report` show it. Skipped where there is one device."""
import pathlib
import sys
import tempfile
import unittest

import emm_program
from top_programs import MIB, Holder, shown, top

SIM = {"EMM_SIM": "devices=2"}
STEPS = ("alloc=3", "device=1", "alloc=5", "device=0", "alloc=1")
LIVE = {0: 4 * MIB, 1: 5 * MIB}


class Top(unittest.TestCase):
    def test_each_device_of_a_program_has_figures_of_its_own(self):
        holder = Holder(self, *STEPS, **SIM)
        contexts = shown()[holder.pid]["contexts"]
        self.assertEqual({one["device"]: one["stats"]["live_bytes"] for one in contexts}, LIVE)
        self.assertEqual(len({one["uuid"] for one in contexts}), 2)

    def test_prometheus_and_the_dump_name_both(self):
        holder = Holder(self, *STEPS, **SIM)
        metrics, dump = top("--prometheus").stdout, top("--dump", holder.pid).stdout
        of_holder = [line for line in metrics.splitlines()
                     if line.startswith("emm_live_bytes{") and f'pid="{holder.pid}"' in line]
        for device, live in LIVE.items():
            line, = [one for one in of_holder if f'device="{device}"' in one]
            self.assertEqual(float(line.split()[-1]), live)
            self.assertIn(f"memory of device {device}:\n", dump)

    def test_a_device_whose_context_is_retired_is_gone_and_the_other_stays(self):
        holder = Holder(self, *STEPS, "device=1", "retire", **SIM)
        self.assertEqual([(one["device"], one["stats"]["live_bytes"]) for one in shown()[holder.pid]["contexts"]],
                         [(0, LIVE[0])])


class Report(unittest.TestCase):
    def test_a_recording_of_both_devices_has_a_history_of_each(self):
        with tempfile.TemporaryDirectory() as folder:
            log, page = pathlib.Path(folder, "log.csv"), pathlib.Path(folder, "page.html")
            holder = Holder(self, *STEPS, EMM_EVENT_LOG=str(log), **SIM)
            self.assertEqual(holder.end(), 0)
            figures = emm_program.answer("report", log, "-o", page)
        self.assertEqual({one["device"]: one["peak_live_bytes"] for one in figures["memory"]}, LIVE)


if __name__ == "__main__":
    if len(emm_program.answer("info", **SIM)["driver"]["devices"]) < 2:
        print("skipped: there is one device")
        sys.exit(77)
    unittest.main(verbosity=2)
