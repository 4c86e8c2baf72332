#!/usr/bin/env python3
"""The report that report.py makes of the files that tests/gpu/run leaves."""
import json
import pathlib
import tempfile
import unittest

import report


def rows_of(make, **results):
    """`make` on a folder of answers; an underscore of a name is a hyphen of its file."""
    with tempfile.TemporaryDirectory() as folder:
        for name, measured in results.items():
            file = pathlib.Path(folder, f"{name.replace('_', '-')}.json")
            file.write_text(json.dumps({"results": measured}), encoding="utf-8")
        return make(pathlib.Path(folder))


class BothDevices(unittest.TestCase):
    def test_each_case_is_compared_with_itself_on_its_own_device(self):
        def one(threads, ns):
            return {"case": "pair", "threads": threads, "size": 256, "ns_per_pair": ns}
        rows = rows_of(report.both_rows, bench_device_0=[one(1, 10.0), one(8, 2.0)],
                       bench_both_0=[one(1, 15.0), {"error": {"message": "none"}}],
                       bench_device_1=[one(1, 20.0)], bench_both_1=[one(1, 20.0)])
        self.assertEqual(rows, [[0, "pair", 1, 256, "10.0", "15.0", "1.500"], [1, "pair", 1, 256, "20.0", "20.0", "1.000"]])

    def test_a_device_that_was_not_measured_both_ways_has_no_row(self):
        self.assertEqual(rows_of(report.both_rows, bench_device_0=[], bench_both_1=[]), [])


class Generated(unittest.TestCase):
    @staticmethod
    def one(plugin, reserved, failed=0):
        return {"plugin": plugin, "events": 9, "peak_live_bytes": 100, "peak_reserved_bytes": reserved,
                "failed": failed, "leaked": 0, "early_handovers": 0}

    def test_the_mean_of_a_workload_is_over_its_seeds_for_each_plugin(self):
        rows = rows_of(report.generated_rows, generated_etl_2=[self.one("pool", 120), self.one("pool:slack=0", 100)],
                       generated_etl_10=[self.one("pool", 130, failed=3), self.one("pool:slack=0", 110)])
        self.assertEqual(rows, [["etl", "pool", "1.250", "2: 1.200, 10: 1.300", 3, 0, 0],
                                ["etl", "pool:slack=0", "1.050", "2: 1.000, 10: 1.100", 0, 0, 0]])

    def test_there_is_no_mean_where_a_seed_did_not_run(self):
        rows = rows_of(report.generated_rows, generated_etl_1=[self.one("pool", 120)],
                       generated_etl_2=[{"plugin": "pool", "error": {"message": "no memory"}}])
        self.assertEqual(rows, [["etl", "pool", "did not run with each seed", "1: 1.200", 0, 0, 0]])


if __name__ == "__main__":
    unittest.main()
