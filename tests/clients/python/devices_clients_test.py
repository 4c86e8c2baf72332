#!/usr/bin/env python3
"""devices_clients_test.py GPU: what the runs on two GPUs decide, in the folder GPU (tests/clients/gpu).

The programs themselves run on the CPU where PyTorch is installed (EMM_TEST_TORCH names a Python that has it): their two
ranks reduce by gloo there.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

GPU = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = GPU / "programs"
sys.path[:0] = [str(GPU), str(PROGRAMS)]
import devices_clients  # noqa: E402
import run_clients  # noqa: E402
from nccl_memory import FABRIC, POSIX_DESCRIPTOR, Driver, Memory, Properties, lacks, registered  # noqa: E402

PYTHON = os.environ.get("EMM_TEST_TORCH") or sys.executable
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0
MIB = 1 << 20


def found(lines, status=0, **figures):
    return {"status": status, "lines": lines, "figures": figures, "errors": ""}


class Verdict(unittest.TestCase):
    program = run_clients.Program("any", ("true",))

    def word(self, mine, first):
        return run_clients.verdict(self.program, mine, first)

    def test_losses_that_differ_in_a_bit_are_different_and_figures_are_not_compared(self):
        first = found(["losses: 1234"], seconds=1.0)
        self.assertEqual(self.word(first, first), ("good", True))
        self.assertEqual(self.word(found(["losses: 1234"], seconds=9.0), first), ("the same", True))
        self.assertEqual(self.word(found(["losses: 1235"], seconds=1.0), first), ("DIFFERENT", False))

    def test_a_program_that_fails_is_not_good_although_it_prints_the_same(self):
        first = found(["losses: 1234"])
        self.assertEqual(self.word(found(["losses: 1234"], status=1), first), ("FAILED (1)", False))

    def test_the_first_way_is_native_and_has_each_program_something_to_compare(self):
        for program in devices_clients.programs():
            if program.name != "limit of each":
                self.assertEqual((program.ways[0].name, program.ways[0].plugin), ("natively", ""))
            self.assertEqual(len({way.name for way in program.ways}), len(program.ways), program.name)

    def test_medians_are_of_each_figure_alone(self):
        runs = [found([], a=1, b=30), found([], a=2, b=10), found([], a=9, b=20)]
        self.assertEqual(run_clients.medians(runs), {"a": 2, "b": 20})


class Requirements(unittest.TestCase):
    reference = Memory(POSIX_DESCRIPTOR, True, 0, 2 * MIB, 2 * MIB)

    def test_memory_lacks_what_the_other_has_and_no_more(self):
        self.assertEqual(lacks(self.reference, self.reference), [])
        self.assertEqual(lacks(Memory(0, False, 0, 2 * MIB, 2 * MIB), self.reference), ["descriptor", "rdma"])
        more = Memory(POSIX_DESCRIPTOR | FABRIC, True, 0, 2 * MIB, 2 * MIB)
        self.assertEqual(lacks(self.reference, more), ["fabric"])
        self.assertEqual(lacks(more, self.reference), [])

    def test_memory_lacks_the_granularity_by_its_address_or_its_size(self):
        for base, size in ((MIB, 2 * MIB), (0, 3 * MIB)):
            self.assertEqual(lacks(Memory(POSIX_DESCRIPTOR, True, base, size, 2 * MIB), self.reference), ["granularity"])

    def test_a_registration_is_told_from_other_lines_of_nccl(self):
        log = ("host:1:2 [0] NCCL INFO rank 0 - IPC register buffer 0x1 size 8 (baseAddr 0x1 size 8) to peer 1\n"
               "host:1:2 [0] NCCL INFO register comm 0x1 buffer 0x2 size 8\n")
        self.assertEqual(registered([log, "", log]), 2)

    def test_what_the_driver_answers_is_read(self):
        test = self

        class Answers:
            def cuMemRetainAllocationHandle(self, handle, address):
                handle._obj.value = 5
                return 0 if address.value == 4096 else 1

            def cuMemGetAllocationPropertiesFromHandle(self, properties, handle):
                properties._obj.handle_types, properties._obj.rdma = POSIX_DESCRIPTOR, 1
                return 0

            def cuMemGetAddressRange_v2(self, base, size, address):
                base._obj.value, size._obj.value = 4096, 2 * MIB
                return 0

            def cuMemGetAllocationGranularity(self, granularity, properties, kind):
                test.assertIsInstance(properties._obj, Properties)
                granularity._obj.value = 2 * MIB
                return 0

            def cuMemRelease(self, handle):
                return 0

        self.assertEqual(Driver(Answers()).memory(4096), Memory(POSIX_DESCRIPTOR, True, 4096, 2 * MIB, 2 * MIB))
        self.assertIsNone(Driver(Answers()).memory(8192))


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Programs(unittest.TestCase):
    def run_one(self, name, *arguments, **variables):
        return subprocess.run([PYTHON, "-B", PROGRAMS / "start_ranks.py", f"{name}.py", *arguments], text=True, capture_output=True,
                              timeout=200, check=False, env={**os.environ, "EMM_TEST_RANKS": "cpu", **variables})

    def test_training_prints_the_same_losses_each_time(self):
        runs = [self.run_one("ddp_training", "--steps", "12") for _ in range(2)]
        lines = [[line for line in done.stdout.splitlines() if not line.startswith("figure")] for done in runs]
        self.assertEqual([done.returncode for done in runs], [0, 0], runs[0].stderr)
        self.assertRegex(lines[0][0], "^losses: [0-9a-f]{16}, the last ")
        self.assertEqual(lines[0], lines[1])

    def test_an_all_reduce_is_verified_in_each_replay(self):
        done = self.run_one("nccl_graph", "--replays", "3", "--mib", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 MiB, 3 replays: 0 words are wrong\n", done.stdout)
        self.assertRegex(done.stdout, re.compile("^figure registered-buffers 0$", re.MULTILINE))

    def run_ranks(self, code):
        """The output of two ranks that run `code`, whose work is the function `work`."""
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "EMM_TEST_RANKS": "cpu", "EMM_TEST_MEETING": folder + "/meeting",
                           "PYTHONPATH": str(PROGRAMS), "PYTHONDONTWRITEBYTECODE": "1"}
            running = [subprocess.Popen([PYTHON, "-c", f"{code}\nranks.run(work)"], text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**environment, "EMM_TEST_RANK": str(rank)})
                       for rank in range(2)]
            told = [process.communicate(timeout=200) for process in running]
        self.assertEqual([process.returncode for process in running], [0, 0], told)
        return [output for output, _ in told]

    def test_a_word_that_one_rank_reduces_wrongly_is_counted(self):
        self.assertEqual(self.run_ranks("""
import torch.distributed as dist
import nccl_graph, ranks
reduce = dist.all_reduce
def wrong(tensor):
    reduce(tensor)
    if tensor.numel() > 1 and dist.get_rank() == 1:
        tensor[7] += 1
dist.all_reduce = wrong
def work(rank):
    print("wrong:", nccl_graph.verified(rank, 1000, 2))
"""), ["wrong: 2\n", "wrong: 2\n"])

    def test_each_buffer_is_registered_and_deregistered_and_what_memory_lacks_is_told(self):
        first, second = self.run_ranks("""
import torch
import nccl_register, ranks
from nccl_memory import POSIX_DESCRIPTOR, Memory
open_handles, allocated = {}, {}
class Nccl:
    def __init__(self, path):
        assert path == "there"
    def register(self, communicator, address, size):
        open_handles[len(open_handles)] = (communicator, address, size)
        return len(open_handles) - 1
    def deregister(self, communicator, handle):
        assert open_handles.get(handle) and open_handles[handle][0] == communicator
        open_handles[handle] = None
    def allocate(self, size):
        tensor = torch.empty(size // 4)
        allocated[tensor.data_ptr()] = tensor
        return tensor.data_ptr()
    def free(self, address):
        del allocated[address]
class Driver:
    def memory(self, address):
        return Memory(POSIX_DESCRIPTOR, address in allocated, 0, 8, 4)
nccl_register.Nccl, nccl_register.Driver = Nccl, Driver
nccl_register.nccl_library = lambda: "there"
nccl_register.communicator = lambda device: 77
nccl_register.Array = lambda address, count: allocated[address]
nccl_register.wish.mib, nccl_register.wish.times = 1, 2
def work(rank):
    nccl_register.work(rank)
    assert len(open_handles) == 23 and not any(open_handles.values()) and not allocated
""")
        self.assertEqual(second, "")
        lines = first.splitlines()
        self.assertEqual([line for line in lines if not line.startswith("figure")],
                         [f"{name}: right, and then right" for name in ("tensor", "part", "ncclMemAlloc")])
        self.assertEqual([line for line in lines if "lacks" in line],
                         ["figure lacks-descriptor 0", "figure lacks-fabric 0", "figure lacks-rdma 1",
                          "figure lacks-granularity 0"])


class Ranks(unittest.TestCase):
    def test_a_rank_that_ends_badly_ends_the_other_and_is_the_programs_status(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text("import os, time\nif os.environ['EMM_TEST_RANK'] == '1':\n    os._exit(5)\ntime.sleep(300)\n",
                               encoding="utf-8")
            done = subprocess.run([sys.executable, "-B", PROGRAMS / "start_ranks.py", program], timeout=200, check=False,
                                  capture_output=True)
        self.assertEqual(done.returncode, 5, done.stderr)

    def test_what_either_rank_has_registered_is_counted_and_multicast_is_off(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text("import os\nassert os.environ['NCCL_NVLS_ENABLE'] == '0'\n"
                               "with open(os.environ['NCCL_DEBUG_FILE'].replace('%p', str(os.getpid())), 'w') as log:\n"
                               "    log.write('rank 0 - IPC register buffer 0x1\\nrank 0 register comm 0x1\\n')\n", encoding="utf-8")
            done = subprocess.run([sys.executable, "-B", PROGRAMS / "start_ranks.py", program], timeout=200, check=False,
                                  capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "figure registered-buffers 2\n"), done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
