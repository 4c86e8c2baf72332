#!/usr/bin/env python3
"""torch_memory_saver's interface served by emm, on the simulated driver; PyTorch is a stand-in (stand_ins/).

EMM_TEST_SAVER=FOLDER, which holds the package's sources, compares the signatures with those. With PyTorch
itself: torch_test.py; on a GPU: tests/clients/gpu/server_clients.py.
"""
import ast
import inspect
import os
import pathlib
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock
import warnings
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).with_name("stand_ins")))
import torch_stand_in  # noqa: E402

torch = torch_stand_in.install()
import emm  # noqa: E402
import emm.torch  # noqa: E402
import emm.torch_memory_saver as served  # noqa: E402

MIB = 1 << 20
SIZE = 40 * MIB
CONTEXT = emm.context_for_device(0)
SOURCES = os.environ.get("EMM_TEST_SAVER")
# For 0.0.10: the arguments of each method, and their defaults.
SIGNATURES = {
    "region": {"self": None, "tag": "default", "enable_cpu_backup": False, "enable_disk_backup": False,
               "cpu_backup_backend": None},
    "cuda_graph": {"self": None, "cuda_graph": None, "pool": None, "stream": None, "capture_error_mode": "global",
                   "tag": "default", "enable_cpu_backup": False, "cpu_backup_backend": None},
    "disable": {"self": None},
    "pause": {"self": None, "tag": None},
    "resume": {"self": None, "tag": None},
    "get_cpu_backup": {"self": None, "x": None, "zero_copy": False},
    "set_disk_backup_dir": {"self": None, "path": None},
}
UNCHOSEN = """
import sys
sys.path.insert(0, sys.argv[1])
import torch_stand_in
torch_stand_in.install()
import emm
if sys.argv[2]:
    emm.set_plugin(sys.argv[2])
from emm.torch_memory_saver import torch_memory_saver as saver
for tag in "a", "b", "a":
    with saver.region(tag=tag):
        torch_stand_in.Tensor(1 << 20)
saver.pause()
print(emm.plugin_info().spec.decode())
"""
PROPERTIES = ("enabled", "hook_mode", "memory_margin_bytes", "retain_cpu_backup")


def arguments_of(function):
    found = inspect.signature(function).parameters.values()
    return {each.name: None if each.default is inspect.Parameter.empty else each.default for each in found}


def python(*words, **variables):
    return subprocess.run([sys.executable, *words], env={**os.environ, **variables}, text=True,
                          capture_output=True, timeout=60, check=False)


class Graph:
    """In the place of a torch.cuda.CUDAGraph."""


class Interface(unittest.TestCase):
    def test_methods_have_the_arguments_of_the_package(self):
        for method, arguments in SIGNATURES.items():
            with self.subTest(method):
                self.assertEqual(arguments_of(getattr(served.TorchMemorySaver, method)), arguments)
        for name in PROPERTIES:
            self.assertTrue(hasattr(served.TorchMemorySaver, name) or hasattr(served.torch_memory_saver, name), name)

    @unittest.skipUnless(SOURCES, "EMM_TEST_SAVER names no sources of the package")
    def test_these_are_the_arguments_in_its_sources(self):
        tree = ast.parse(pathlib.Path(SOURCES, "torch_memory_saver/entrypoint.py").read_text())
        found, = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TorchMemorySaver")
        names = {"_TAG_DEFAULT": "default"}
        there = {}
        for node in found.body:
            if isinstance(node, ast.FunctionDef):
                values = [names.get(value.id) if isinstance(value, ast.Name) else ast.literal_eval(value)
                          for value in node.args.defaults]
                values = [None] * (len(node.args.args) - len(values)) + values
                there[node.name] = dict(zip((each.arg for each in node.args.args), values))
        self.assertEqual({name: there.get(name) for name in SIGNATURES}, SIGNATURES)
        self.assertEqual([name for name in there if not name.startswith("_")
                          and name not in (*SIGNATURES, *PROPERTIES)], [])

    def test_any_text_is_a_tag_and_no_two_have_one_pool(self):
        tags = ["weights", "kv_cache", "a b", "a_b", "x" * 40, "x" * 41, "größe", "w.kept", "w", "/", ""]
        names = [served.pool_name(tag, keeps) for tag in tags for keeps in (False, True)]
        self.assertEqual(len(set(names)), 2 * len(tags))
        for name in names:
            self.assertRegex(name, r"\A[A-Za-z0-9_.-]{1,31}\Z")
        self.assertEqual(served.pool_name("weights", False), "weights")

    def test_it_stands_in_the_packages_place_also_in_subprocesses(self):
        folder = python("-m", "emm.torch_memory_saver").stdout.strip()
        path = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
        program = ("import torch_memory_saver, emm.torch_memory_saver as served; "
                   "print(torch_memory_saver.torch_memory_saver is served.torch_memory_saver, "
                   "torch_memory_saver.TorchMemorySaver is served.TorchMemorySaver)")
        self.assertEqual(python("-c", program, PYTHONPATH=path).stdout, "True True\n")
        before = os.environ["PYTHONPATH"]
        with served.configure_subprocess():
            self.assertEqual(python("-c", program).stdout, "True True\n")
        self.assertEqual(os.environ["PYTHONPATH"], before)

    def test_without_a_choice_the_plugin_is_one_that_can_pause(self):
        environment = {name: value for name, value in os.environ.items() if name != "EMM_PLUGIN"}
        for chosen, expected in (("", "pool\n"), ("pool:max=512MiB", "pool:max=512MiB\n")):
            done = subprocess.run([sys.executable, "-c", UNCHOSEN, str(pathlib.Path(__file__).with_name("stand_ins")), chosen],
                                  env=environment, text=True, capture_output=True, timeout=60, check=False)
            self.assertEqual((done.stdout, done.stderr), (expected, ""))

    def test_hook_modes_are_accepted_and_others_are_not(self):
        saver = served.TorchMemorySaver()
        for mode in "preload", "torch":
            saver.hook_mode = mode
            self.assertEqual(saver.hook_mode, mode)
        with self.assertRaisesRegex(ValueError, "expected 'preload' or 'torch', found 'other'"):
            saver.hook_mode = "other"

    def test_what_emm_does_not_have_is_refused_or_warned_of(self):
        saver = served.TorchMemorySaver()
        for call in (lambda: saver.set_disk_backup_dir("/tmp"),
                     lambda: saver.region(enable_disk_backup=True).__enter__()):
            self.assertRaisesRegex(NotImplementedError, "not on disk", call)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            saver.memory_margin_bytes = 1 << 30
        self.assertIn("pool:max=", str(said[0].message))
        self.assertRaises(ValueError, saver.region(cpu_backup_backend="pinned").__enter__)
        self.assertRaises(ValueError, saver.region(enable_cpu_backup=True, cpu_backup_backend="disk").__enter__)


class Saver(unittest.TestCase):
    def setUp(self):
        self.saver = served.TorchMemorySaver()

    def tearDown(self):
        self.assertEqual(torch_stand_in.ABORTED, [])

    def make(self, value=1, **region):
        with self.saver.region(**region):
            return torch_stand_in.Tensor(SIZE).fill(value)

    def reserved(self, *names):
        return sum(emm.stats(emm.context_named(CONTEXT, name)).reserved_bytes for name in names)

    def test_the_content_is_kept_with_a_backup(self):
        kept = self.make(7, tag="weights", enable_cpu_backup=True)
        lost = self.make(8, tag="weights")
        names = "weights", "weights.kept"
        before = self.reserved(*names)
        self.saver.pause("weights")
        self.assertEqual(self.reserved(*names), 0)
        self.saver.pause("weights")
        self.saver.resume("weights")
        self.assertEqual(self.reserved(*names), before)
        self.assertEqual(kept.bytes(), bytes([7]) * SIZE)
        self.assertEqual(lost.fill(9).bytes(), bytes([9]) * SIZE)

    def test_tags_sleep_by_themselves_and_all_together(self):
        first, second = self.make(1, tag="a", enable_cpu_backup=True), self.make(2, tag="b", enable_cpu_backup=True)
        self.saver.pause("a")
        self.assertEqual(self.reserved("a.kept"), 0)
        self.assertEqual(second.bytes(), bytes([2]) * SIZE)
        self.saver.pause()
        self.assertEqual(self.reserved("a.kept", "b.kept"), 0)
        self.saver.resume("b")
        self.assertEqual(second.bytes(), bytes([2]) * SIZE)
        self.saver.resume()
        self.assertEqual(first.bytes(), bytes([1]) * SIZE)
        self.saver.pause("nothing of that name")
        self.saver.resume("nothing of that name")

    def test_regions_nest_and_are_used_again(self):
        with self.saver.region(tag="outer"):
            inner = self.make(3, tag="inner", enable_cpu_backup=True)
            outer = torch_stand_in.Tensor(SIZE).fill(4)
        del inner
        self.assertEqual(self.make(tag="inner", enable_cpu_backup=True).size, SIZE)
        self.saver.pause("inner")
        self.assertEqual(outer.bytes(), bytes([4]) * SIZE)
        self.saver.resume("inner")

    def test_a_backup_can_be_read_while_its_tag_is_paused(self):
        kept = self.make(5, tag="read", enable_cpu_backup=True)
        lost = self.make(6, tag="read")
        self.assertIsNone(self.saver.get_cpu_backup(kept))
        self.saver.pause("read")
        self.assertEqual(self.saver.get_cpu_backup(kept).bytes(), bytes([5]) * SIZE)
        self.assertEqual(self.saver.get_cpu_backup(kept, zero_copy=True).bytes(), bytes([5]) * SIZE)
        self.assertIsNone(self.saver.get_cpu_backup(lost))
        self.saver.resume("read")
        self.assertIsNone(self.saver.get_cpu_backup(kept))

    def test_the_copys_memory_stays_if_it_is_to(self):
        self.make(tag="retained", enable_cpu_backup=True)
        for retains in (True, False):
            self.saver.retain_cpu_backup = retains
            self.saver.pause("retained")
            self.saver.resume("retained")
            there = emm.stats(emm.context_named(CONTEXT, "retained.kept")).host_reserved_bytes
            self.assertEqual(there > 0, retains)

    def test_a_graphs_memory_sleeps_too(self):
        first, second = Graph(), Graph()
        with self.saver.cuda_graph(first, tag="graph", enable_cpu_backup=True):
            inside = torch_stand_in.Tensor(SIZE).fill(6)
        with self.saver.cuda_graph(second, pool=(7, 7), tag="graph", enable_cpu_backup=True):
            other = torch_stand_in.Tensor(SIZE).fill(7)
        self.saver.pause("graph")
        self.assertEqual(self.reserved("graph.kept"), 0)
        self.saver.resume("graph")
        self.assertEqual((inside.bytes(), other.bytes()), (bytes([6]) * SIZE, bytes([7]) * SIZE))

    def pool_of(self, graph, pool=None):
        """Captures a graph, of which no tensor lives on."""
        with self.saver.cuda_graph(graph, pool=pool, tag="captured"):
            return torch_stand_in.Tensor(SIZE).pool()

    def test_graphs_share_memory_by_the_same_pool_alone(self):
        graphs = [Graph() for _ in range(5)]
        first, second = self.pool_of(graphs[0]), self.pool_of(graphs[1])
        self.assertIsNot(first, second)
        self.assertIs(self.pool_of(graphs[2], pool=first.id), first)
        given = self.pool_of(graphs[3], pool=(7, 7))
        self.assertNotIn(given, (first, second))
        self.assertIs(self.pool_of(graphs[4], pool=(7, 7)), given)

    def test_the_memory_of_graphs_goes_back_when_the_last_one_is_gone(self):
        def live():
            return emm.stats(emm.context_named(CONTEXT, "captured")).live_bytes

        self.saver.pause("nothing of that name")  # ends what waits
        before, graphs = live(), [Graph(), Graph()]
        for graph in graphs:
            self.pool_of(graph, pool=(8, 8))
        del graph, graphs[0]
        self.saver.pause("nothing of that name")
        held = live()
        self.assertGreaterEqual(held, before + SIZE)
        with self.saver.region(tag="off"):
            graphs.clear()
            self.assertEqual(live(), held)  # no pool ends within a region
        self.assertEqual(live(), before)

    def test_what_is_made_in_disable_stays(self):
        with self.saver.region(tag="off"):
            with self.saver.disable():
                outside = torch_stand_in.Tensor(SIZE).fill(3)
        self.saver.pause("off")
        self.assertEqual(outside.bytes(), bytes([3]) * SIZE)
        self.saver.resume("off")

    def test_threads_that_begin_a_tag_together_make_one_pool(self):
        before, barrier, made = torch_stand_in.MemPool.made, threading.Barrier(2), []
        make = emm.torch.mem_pool

        def mem_pool(*arguments):
            time.sleep(.1)  # so that the other thread comes meanwhile
            return make(*arguments)

        def begin():
            barrier.wait()
            made.append(self.saver._torch_pool("together", False))

        threads = [threading.Thread(target=begin) for _ in range(2)]
        with unittest.mock.patch.object(emm.torch, "mem_pool", mem_pool):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertIs(*made)
        self.assertEqual(torch_stand_in.MemPool.made, before + 1)

    def test_an_error_in_disable_ends_no_pool_within_the_region(self):
        with self.saver.region(tag="off"):
            with self.assertRaises(KeyError), self.saver.disable():
                raise KeyError
            inside = torch_stand_in.Tensor(SIZE).fill(3)
        self.assertEqual(torch_stand_in.ABORTED, [])
        self.assertEqual(inside.bytes(), bytes([3]) * SIZE)

    def test_no_pool_ends_within_a_region_of_the_programs_own(self):
        own = torch_stand_in.MemPool()
        graph = Graph()
        ended = weakref.ref(self.pool_of(graph))
        with torch_stand_in.use_mem_pool(own):
            with self.saver.disable():
                passing = weakref.ref(torch_stand_in.CURRENT[-1])
            del graph
            self.saver.pause("nothing of that name")
            self.assertEqual((torch_stand_in.ABORTED, ended() is None, passing() is None), ([], False, False))
        self.saver.pause("nothing of that name")
        self.assertEqual((ended(), passing()), (None, None))

    def test_a_pause_that_fails_leaves_all_tags_awake(self):
        kept = self.make(1, tag="one", enable_cpu_backup=True)
        self.make(2, tag="two")
        two = emm.context_named(CONTEXT, "two")
        emm.check(emm.lib.emm_defer_cleanup_begin(two))
        try:
            self.assertRaises(emm.Error, self.saver.pause)
        finally:
            emm.check(emm.lib.emm_defer_cleanup_end(two))
        self.assertEqual(kept.bytes(), bytes([1]) * SIZE)
        self.saver.pause()
        self.assertEqual(self.reserved("one.kept", "two"), 0)
        self.saver.resume()


if __name__ == "__main__":
    unittest.main(verbosity=2)
