#!/usr/bin/env python3
"""Programs that need nearly all of a device have every request met by the pool."""
import unittest

from emm_program import Trace, run
from tight_load import GiB, MiB, any_sizes, queries


def check(load, memory):
    with Trace(load.rows) as path:
        done = run("replay", path, "--plugin", "pool:growth=vmm",
                   EMM_SIM=f"memory={memory // (2 * MiB) * (2 * MiB)}")
    if done.returncode != 0:
        raise AssertionError(done.stderr)


class Tight(unittest.TestCase):
    def test_every_request_is_met_where_up_to_95_percent_of_the_device_are_live(self):
        for seed, live in (1, 34), (1, 36), (1, 38), (2, 38):
            with self.subTest(seed=seed, live=live):
                check(queries(seed, live * GiB), 40 * GiB)

    def test_large_requests_are_met_on_a_device_little_larger_than_the_peak(self):
        for seed in 1, 2, 3:
            with self.subTest(seed=seed):
                load = any_sizes(seed)
                check(load, int(load.peak * 1.0016))


if __name__ == "__main__":
    unittest.main(verbosity=2)
