#!/usr/bin/env python3
"""server_clients_test.py GPU: what the run of servers on a GPU decides, in the folder GPU (tests/clients/gpu).

EMM_TEST_TORCH names a Python that has PyTorch and transformers: there the engines themselves run, with a tiny model on the CPU.
"""
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GPU = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(GPU))
import server_clients  # noqa: E402

PYTHON = os.environ.get("EMM_TEST_TORCH") or sys.executable
HAS_ENGINES = subprocess.run([PYTHON, "-c", "import torch, transformers"], capture_output=True, check=False).returncode == 0
SAID = {"tokens": [1, 2], "bits": "abc"}


class Device:
    """Has so many bytes."""
    free = 1000


class Engine(server_clients.Asked):
    """One that holds `holds` bytes while it is awake, and says `later` after that many sleeps."""

    def __init__(self, device, holds=100, wrong_after=None, stays=0):
        self.device, self.holds, self.wrong_after, self.stays = device, holds, wrong_after, stays
        self.good, self.sleeps, self.times, self.bytes = True, 1, {"sleep": [1.0], "wake": [], "first": []}, holds
        self.said, self.served = SAID, 0

    def change(self, word):
        self.device.free += (self.holds - self.stays) * (1 if word == "sleep" else -1)
        self.sleeps += word == "sleep"
        self.times[word].append(2.0)

    def ask(self, word):
        assert word == "generate"
        self.served += 1
        wrong = self.wrong_after is not None and self.sleeps > self.wrong_after
        return {**SAID, "bits": "other" if wrong else "abc", "first": 3.0}


def decided(engines, least, way="vllm-backend"):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        good = server_clients.print_table({way: (engines, least) if engines else least}, False)
    return good, said.getvalue()


class Turns(unittest.TestCase):
    def setUp(self):
        self.device = Device()

    def turns(self, engines, sleeps=50):
        return server_clients.take_turns(engines, sleeps, lambda: self.device.free)

    def test_each_engine_is_compared_after_each_sleep_and_one_is_awake_at_a_time(self):
        engines = [Engine(self.device), Engine(self.device)]
        self.assertEqual(self.turns(engines), 1.0)
        self.assertEqual([(engine.sleeps, engine.served, engine.good) for engine in engines], [(50, 50, True)] * 2)

    def test_a_bit_that_differs_after_the_last_sleep_is_found(self):
        engines = [Engine(self.device), Engine(self.device, wrong_after=49)]
        self.turns(engines)
        self.assertEqual([engine.good for engine in engines], [True, False])
        good, said = decided(engines, 1.0)
        self.assertFalse(good)
        self.assertIn("DIFFERENT", said)

    def test_memory_that_stays_is_found(self):
        engines = [Engine(self.device), Engine(self.device, stays=5)]
        least = self.turns(engines)
        self.assertEqual(least, 0.95)
        self.assertFalse(decided(engines, least)[0])
        self.assertTrue(decided(engines, least, "torch_memory_saver")[0])

    def test_a_way_of_emm_that_ends_is_a_failure_and_another_is_not(self):
        self.assertFalse(decided(None, "ended with status 1")[0])
        self.assertTrue(decided(None, "ended with status 1", "torch_memory_saver")[0])

    @unittest.skipUnless(HAS_ENGINES, "this Python has no PyTorch with transformers")
    def test_the_engines_run(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PYTHON, "-B", GPU / "server_clients.py", folder, "--rehearse", "--sleeps", "2", "--runs", "2",
                                   "--only", "vllm-backend,reload"], text=True, capture_output=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertIn("| vllm-backend | 2, 2 | equal |", done.stdout)
        self.assertIn("| reload | 2, 5 | equal |", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
