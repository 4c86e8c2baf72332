#!/usr/bin/env python3
"""emm as vLLM's sleep-mode backend, on the simulated driver: vLLM and PyTorch are stand-ins (stand_ins/).

EMM_TEST_VLLM=FOLDER, which holds vLLM's sources, compares the stand-in's signatures with those.
"""
import ast
import inspect
import os
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).with_name("stand_ins")))
import torch_stand_in  # noqa: E402
import vllm_stand_in  # noqa: E402

torch = torch_stand_in.install()
vllm_stand_in.install()
import emm  # noqa: E402
import emm.torch  # noqa: E402
import emm.vllm  # noqa: E402
from emm._vllm_backend import EmmBackend  # noqa: E402

MIB = 1 << 20
SIZE = 40 * MIB
CONTEXT = emm.context_for_device(0)
SOURCES = os.environ.get("EMM_TEST_VLLM")


def held():
    """The device bytes that all of emm's pools have reserved."""
    return sum(emm.stats(emm.context_named(CONTEXT, name)).reserved_bytes for name in emm.torch._allocators)


def arguments_of(function):
    found = inspect.signature(function.__func__ if inspect.ismethod(function) else function).parameters.values()
    return {each.name: None if each.default is inspect.Parameter.empty else each.default for each in found}


def arguments_in(node):
    defaults = [None] * (len(node.args.args) - len(node.args.defaults)) + [ast.literal_eval(value)
                                                                            for value in node.args.defaults]
    return dict(zip((each.arg for each in node.args.args), defaults))


class Interface(unittest.TestCase):
    def test_backend_and_allocator_have_the_methods_and_arguments_that_vllm_calls(self):
        for of, ours in (("SleepModeBackend", EmmBackend), ("MemAllocator", emm.vllm.Allocator)):
            wanted, = (methods for (_, name), methods in vllm_stand_in.SIGNATURES.items() if name == of)
            for method, arguments in wanted.items():
                with self.subTest(f"{of}.{method}"):
                    self.assertEqual(arguments_of(getattr(ours, method)), arguments)

    @unittest.skipUnless(SOURCES, "EMM_TEST_VLLM names no sources of vLLM")
    def test_the_stand_in_has_the_signatures_of_vllms_sources(self):
        for (file, name), methods in vllm_stand_in.SIGNATURES.items():
            tree = ast.parse(pathlib.Path(SOURCES, file).read_text())
            found, = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
            there = {node.name: arguments_in(node) for node in found.body if isinstance(node, ast.FunctionDef)}
            for method, arguments in methods.items():
                with self.subTest(f"{name}.{method}"):
                    self.assertEqual(there.get(method), arguments)

    def test_flags_say_what_survives(self):
        self.assertTrue(EmmBackend.is_supported())
        self.assertTrue(EmmBackend.preserves_communicators())
        self.assertTrue(EmmBackend.preserves_compiled_artifacts())
        self.assertFalse(EmmBackend.preserves_graphs_with_communicators())
        self.assertFalse(EmmBackend.supports_durable_storage())


class Registration(unittest.TestCase):
    def setUp(self):
        self.vllm = vllm_stand_in.install()

    def instance(self, module="device_allocator"):
        found = self.vllm.v1.worker.gpu_worker if module == "gpu_worker" else self.vllm.device_allocator
        return found.get_mem_allocator_instance()

    def test_a_worker_that_names_emm_gets_emms_allocator_wherever_vllm_looks_for_it(self):
        emm.vllm.register()
        worker = vllm_stand_in.WorkerBase(vllm_config=vllm_stand_in.config(), local_rank=1, rank=2,
                                          distributed_init_method="x", is_driver_worker=True)
        self.assertEqual(worker.made_with[1:], (1, 2, "x", True))
        for module in "device_allocator", "gpu_worker":
            self.assertIs(self.instance(module), emm.vllm.allocator())
        backend = vllm_stand_in.SleepModeBackendFactory.create_backend(vllm_stand_in.config().model_config)
        self.assertIs(type(backend), EmmBackend)

    def test_a_worker_of_another_backend_keeps_vllms_allocator(self):
        emm.vllm.register()
        vllm_stand_in.WorkerBase(vllm_stand_in.config("cumem"), 0, 0, "x")
        for module in "device_allocator", "gpu_worker":
            self.assertEqual(self.instance(module), "vLLM's own allocator")

    def test_it_is_registered_once(self):
        emm.vllm.register()
        made = vllm_stand_in.WorkerBase.__init__
        emm.vllm.register()
        self.assertIs(vllm_stand_in.WorkerBase.__init__, made)

    def test_a_vllm_without_a_registry_stays_as_it_is(self):
        vllm_stand_in.install(registry=False)
        emm.vllm.register()
        self.assertIs(vllm_stand_in.WorkerBase.__init__, vllm_stand_in.INITIALIZER)


class Sleep(unittest.TestCase):
    def setUp(self):
        emm.vllm.allocator.cache_clear()
        self.allocator, self.backend = emm.vllm.allocator(), EmmBackend()
        self.tensors = {}

    def tearDown(self):
        self.allocator.wake_up()
        self.tensors.clear()
        for name in emm.torch._allocators:
            emm.lib.emm_trim(emm.context_named(CONTEXT, name), 0, None)
        self.assertEqual(torch_stand_in.ABORTED, [])

    def make(self, *tags):
        for number, tag in enumerate(tags, start=len(self.tensors) + 1):
            with self.allocator.use_memory_pool(tag):
                self.tensors[tag] = torch_stand_in.Tensor(SIZE).fill(number)

    def expect(self, tag, value):
        self.assertEqual(self.tensors[tag].bytes(), bytes([value]) * SIZE, tag)

    def copied(self, tag):
        return emm.stats(emm.context_named(CONTEXT, tag)).host_reserved_bytes

    def test_level_1_keeps_weights_and_state_and_gives_all_memory_back(self):
        self.make("weights", "kv_cache", "runtime", "workspace")
        before = held()
        self.assertGreaterEqual(before, 4 * SIZE)
        self.backend.suspend(1)
        self.assertEqual((held(), self.backend.state()), (0, "SUSPENDED"))
        self.assertEqual([self.copied(tag) > 0 for tag in self.tensors], [True, False, True, False])
        self.backend.resume()
        self.assertEqual((held(), self.backend.state()), (before, "RUNNING"))
        self.expect("weights", 1)
        self.expect("runtime", 3)

    def test_level_2_keeps_state_alone(self):
        self.make("weights", "kv_cache", "runtime")
        for tag in self.tensors:
            emm.pause(tag, discard=True)
            emm.resume(tag)  # without the copy's memory of an earlier test
        self.tensors["runtime"].fill(9)
        self.backend.suspend(2)
        self.assertEqual([self.copied(tag) > 0 for tag in self.tensors], [False, False, True])
        self.backend.resume()
        self.expect("runtime", 9)

    def test_a_wake_up_by_tags_leaves_the_other_deferrable_ones_asleep(self):
        self.make("weights", "kv_cache", "runtime")
        self.backend.suspend()
        self.backend.resume(["weights"])
        self.expect("weights", 1)
        self.expect("runtime", 3)
        self.assertEqual((self.allocator.asleep, self.backend.state()), ({"kv_cache"}, "RESUMING"))
        self.backend.resume(["kv_cache"])
        self.assertEqual((self.allocator.asleep, self.backend.state()), (set(), "RUNNING"))
        self.tensors["kv_cache"].fill(8)
        self.expect("kv_cache", 8)

    def test_discard_frees_the_cache_beside_weights_that_stay(self):
        self.make("weights", "kv_cache")
        before = held()
        self.backend.discard(("kv_cache",))
        self.assertLessEqual(held(), before - SIZE)
        self.assertEqual(self.backend.state(), "SUSPENDED")
        self.expect("weights", 1)
        self.backend.discard(("kv_cache",))
        self.backend.suspend()  # of the rest
        self.assertEqual(held(), 0)
        self.backend.resume(["weights", "kv_cache"])
        self.expect("weights", 1)

    def test_a_sleep_that_fails_leaves_everything_awake_and_can_be_repeated(self):
        self.make("weights", "kv_cache")
        cache = emm.context_named(CONTEXT, "kv_cache")
        emm.check(emm.lib.emm_defer_cleanup_begin(cache))
        try:
            self.assertRaises(emm.Error, self.backend.suspend)
        finally:
            emm.check(emm.lib.emm_defer_cleanup_end(cache))
        self.assertEqual((self.allocator.asleep, self.backend.state()), (set(), "RUNNING"))
        self.expect("weights", 1)
        self.expect("kv_cache", 2)
        self.backend.suspend()
        self.assertEqual(held(), 0)

    def test_a_sleep_that_fails_leaves_what_others_have_paused_asleep(self):
        self.make("weights", "kv_cache")
        emm.pause("weights")
        cache = emm.context_named(CONTEXT, "kv_cache")
        emm.check(emm.lib.emm_defer_cleanup_begin(cache))
        try:
            self.assertRaises(emm.Error, self.backend.suspend)
        finally:
            emm.check(emm.lib.emm_defer_cleanup_end(cache))
        self.assertEqual(emm.stats(emm.context_named(CONTEXT, "weights")).reserved_bytes, 0)
        emm.resume("weights")
        self.expect("weights", 1)

    def test_a_wake_up_without_room_can_be_repeated(self):
        self.make("weights")
        self.backend.suspend()
        with torch.cuda.use_mem_pool(emm.torch.mem_pool("other")):
            free, _ = emm.memory_info(CONTEXT)
            full = torch_stand_in.Tensor(free - SIZE // 2)
        self.assertRaises(emm.OutOfMemoryError, self.backend.resume)
        self.assertEqual((self.allocator.asleep, self.backend.state()), ({"weights"}, "RESUMING"))
        del full
        self.backend.resume()
        self.expect("weights", 1)

    def test_unused_memory_is_looked_for_by_the_wake_up_that_lacks_room(self):
        self.make("weights")
        self.backend.suspend()
        with torch.cuda.use_mem_pool(emm.torch.mem_pool("other")):
            free, _ = emm.memory_info(CONTEXT)
            garbage = [torch_stand_in.Tensor(free - SIZE // 2)]
        with mock.patch.object(emm.vllm.gc, "collect", side_effect=garbage.clear) as collect:
            self.backend.resume()
            self.assertEqual(collect.call_count, 1)
            self.backend.suspend()
            collect.reset_mock()
            self.backend.resume()
            self.assertEqual(collect.call_count, 0)
        self.expect("weights", 1)

    def test_the_copys_memory_stays_for_the_next_sleep_unless_vllm_is_told_otherwise(self):
        self.make("weights")
        for setting, stays in (("0", True), ("1", False)):
            os.environ["VLLM_SLEEP_MODE_RELEASE_HOST_MEMORY"] = setting
            self.backend.suspend()
            self.backend.resume()
            self.assertEqual(self.copied("weights") > 0, stays)
        del os.environ["VLLM_SLEEP_MODE_RELEASE_HOST_MEMORY"]

    def test_what_was_freed_while_a_tag_was_loaded_is_in_no_pause(self):
        with self.allocator.use_memory_pool("weights"):
            passing = torch_stand_in.Tensor(SIZE)
            self.tensors["weights"] = torch_stand_in.Tensor(SIZE).fill(1)
            del passing
        self.assertEqual(self.allocator.get_current_usage(), SIZE)

    def test_tags_nest_and_what_the_inner_one_does_not_need_goes_back_with_the_outer_one(self):
        with self.allocator.use_memory_pool("runtime"):
            with self.allocator.use_memory_pool("kv_cache"):
                passing = torch_stand_in.Tensor(SIZE)
                self.tensors["kv_cache"] = torch_stand_in.Tensor(SIZE)
                del passing
            self.tensors["runtime"] = torch_stand_in.Tensor(SIZE).fill(2)
        self.assertEqual(self.allocator.get_current_usage(), 2 * SIZE)
        self.backend.discard("kv_cache")
        self.expect("runtime", 2)

    def test_an_error_in_an_inner_tag_ends_no_pool_within_the_outer_one(self):
        with self.allocator.use_memory_pool("runtime"):
            with self.assertRaises(KeyError), self.allocator.use_memory_pool("kv_cache"):
                raise KeyError
        self.assertEqual(torch_stand_in.ABORTED, [])

    def test_no_pool_ends_within_a_region_of_the_programs_own(self):
        with torch_stand_in.use_mem_pool(torch_stand_in.MemPool()), self.allocator.use_memory_pool("kv_cache"):
            pass
        self.assertEqual(torch_stand_in.ABORTED, [])

    def test_usage_is_that_of_all_tags(self):
        self.assertEqual(self.allocator.get_current_usage(), 0)
        self.make("weights", "kv_cache")
        self.assertEqual(self.allocator.get_current_usage(), 2 * SIZE)
        self.make(None)
        self.assertEqual(self.allocator.awake, {"weights", "kv_cache", "default"})

    def test_segments_do_not_expand_in_a_pool(self):
        with self.allocator.use_memory_pool("weights"):
            self.assertTrue(vllm_stand_in.Conf.inside)
        self.assertFalse(vllm_stand_in.Conf.inside)

    def test_a_backend_that_has_nothing_to_put_to_sleep_says_why(self):
        with self.assertRaisesRegex(RuntimeError, "vLLM has allocated nothing in emm's pools"):
            self.backend.suspend()


if __name__ == "__main__":
    unittest.main(verbosity=2)
