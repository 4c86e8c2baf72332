#!/usr/bin/env python3
"""torch_test.py: PyTorch on emm, on the simulated driver. Skipped where PyTorch is missing.

EMM_TEST_TORCH names a Python that has PyTorch; otherwise it is this one. Each case is a program of
torch_programs/ in a process of its own. Kernels do not run there (torch_runtime.cpp), so the programs
copy what they compare. Real GPUs: tests/clients/gpu/torch_clients.py.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.environ.get("EMM_TEST_TORCH") or sys.executable
SIMULATED = os.environ.get("EMM_DRIVER") == "sim"
# The folders of PyTorch's CUDA headers, beside the runtime that it loads.
FIND_HEADERS = """
import pathlib, sys
def missing(reason):
    print(reason)
    sys.exit(77)

try:
    import torch
except ImportError:
    missing("this Python has no PyTorch")
from emm import _torch_backend as backend
try:
    for folder in backend.cuda_folders():
        print(folder)
except backend.Unavailable as reason:
    missing(reason)
"""
folder = None  # of the compiled runtime, and the cache


def run(*words, **variables):
    return subprocess.run([str(word) for word in words], env={**os.environ, **variables}, text=True,
                          capture_output=True, timeout=200, check=False)


def compile_runtime(headers):
    """The file of torch_runtime.cpp's library."""
    made = pathlib.Path(folder, "libtorch-runtime.so")
    # Meson names further folders there, in no order.
    driver = next(path for folder in os.environ["LD_LIBRARY_PATH"].split(":")
                  if (path := pathlib.Path(folder, "libcuda.so.1")).is_file())
    includes = [word for folder in headers for word in ("-isystem", folder)]
    done = run("c++", "-std=c++20", "-fPIC", "-shared", *includes,
               HERE / "torch_runtime.cpp", driver, "-o", made)
    if done.returncode != 0:
        raise AssertionError(f"torch_runtime.cpp does not compile: {done.stderr[:1000]}")
    return made


class OnEmm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runtime = compile_runtime(run(PYTHON, "-c", FIND_HEADERS).stdout.splitlines())

    def program(self, name, *arguments, **variables):
        environment = {"LD_PRELOAD": str(self.runtime), "XDG_CACHE_HOME": folder,
                       "EMM_SIM": "memory=1GiB,devices=1", **variables}
        done = run(PYTHON, HERE / "torch_programs" / f"{name}.py", *arguments, **environment)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr[-3000:]}")
        return done

    def test_figures_are_those_of_what_is_allocated(self):
        for progress in ("eager", "lazy"):
            with self.subTest(progress):
                self.program("figures", EMM_SIM=f"memory=1GiB,devices=1,progress={progress}")

    def test_out_of_memory_is_pytorchs_own_error_with_emms_words(self):
        self.program("out_of_memory")

    def test_a_compiler_that_links_a_runtime_of_its_own_makes_no_difference(self):
        with tempfile.TemporaryDirectory() as cache:
            self.program("out_of_memory", XDG_CACHE_HOME=cache,
                         CXX="c++ -static-libstdc++ -static-libgcc")

    def test_use_after_the_first_allocation_leaves_that_where_it_is(self):
        self.program("late")

    def test_snapshots_and_history_tell_where_memory_was_allocated(self):
        self.program("history")

    def test_memory_used_on_another_stream_is_not_given_out_too_early(self):
        self.program("streams", EMM_SIM="memory=1GiB,progress=lazy,race=abort")

    def test_devices_and_threads_have_figures_of_their_own(self):
        for peer in (1, 0):
            with self.subTest(peer=peer):
                self.program("devices", EMM_SIM=f"devices=2,memory=1GiB,peer={peer}")

    def test_graphs_keep_their_memory(self):
        for plugin in ("pool", "pool:growth=segment", "passthrough", "async"):
            with self.subTest(plugin):
                self.program("graphs", EMM_PLUGIN=plugin, EMM_SIM="memory=1GiB,progress=lazy,race=abort")

    def test_graphs_of_torch_compile_rewind_their_pool(self):
        self.program("trees")

    def test_pools_of_pytorch_are_served(self):
        for plugin in ("pool", "pool:growth=segment", "passthrough", "async"):
            with self.subTest(plugin):
                self.program("pools", EMM_PLUGIN=plugin, EMM_SIM="memory=1GiB,progress=lazy,race=abort")

    def test_pools_of_pytorch_are_pools_of_emm(self):
        for progress in ("eager", "lazy"):
            with self.subTest(progress):
                self.program("mem_pools", EMM_LIMIT="256MiB", EMM_SIM=f"memory=1GiB,devices=1,progress={progress}")

    def test_pinned_memory_is_not_given_out_too_early(self):
        for plugin in ("pool", "passthrough", "async"):
            for progress in ("eager", "lazy"):
                with self.subTest(plugin, progress=progress):
                    self.program("pinned", EMM_PLUGIN=plugin, EMM_SIM=f"memory=1GiB,progress={progress},race=abort")

    def test_pinned_memory_has_a_pool_and_serves_devices_and_threads(self):
        for peer in (1, 0):
            with self.subTest(peer=peer):
                self.program("pinned_pool", EMM_SIM="devices=2,memory=1GiB,progress=timed,duration=300000,race=abort,"
                                                    f"peer={peer}")

    def test_pinned_memory_leaves_a_pool_its_options(self):
        self.program("pinned_options")

    def test_regions_and_tags_go_to_sleep(self):
        for progress in ("eager", "lazy"):
            for allocator in ("", "use"):
                with self.subTest(progress, allocator=allocator):
                    self.program("saver", allocator, EMM_SIM=f"memory=1GiB,devices=1,progress={progress}")

    def test_a_plugin_written_in_python_is_behind_pools_of_pytorch(self):
        self.program("python_plugin", EMM_PLUGIN="", EMM_SIM="devices=2,memory=1GiB")

    def test_threads_share_pools_of_pytorch(self):
        self.program("pool_threads", EMM_LIMIT="128MiB", EMM_SIM="memory=1GiB,devices=1,progress=random,race=abort")

    def test_tensors_are_shared_between_processes(self):
        for plugin in ("pool:growth=vmm", "pool:growth=segment", "passthrough", "async:ipc=1"):
            with self.subTest(plugin):
                self.program("sharing", EMM_PLUGIN=plugin)

    def test_tensors_of_two_devices_are_shared_between_processes(self):
        for plugin in ("pool:growth=vmm", "pool:growth=segment"):
            with self.subTest(plugin):
                self.program("sharing", "1", EMM_PLUGIN=plugin, EMM_SIM="devices=2,memory=1GiB")

    def test_without_a_compiler_the_pluggable_allocator_serves_and_says_why(self):
        with tempfile.TemporaryDirectory() as empty:
            done = self.program("fallback", XDG_CACHE_HOME=empty, PATH="/nowhere", CXX="")
        self.assertIn("no C++ compiler is installed", done.stderr)

    def test_the_library_is_compiled_once(self):
        with tempfile.TemporaryDirectory() as cache:
            command = [PYTHON, "-c", "import emm.torch; emm.torch.use()"]
            environment = {**os.environ, "XDG_CACHE_HOME": cache, "LD_PRELOAD": str(self.runtime)}
            running = [subprocess.Popen(command, env=environment) for _ in range(2)]
            self.assertEqual([process.wait(timeout=200) for process in running], [0, 0])
            made, = pathlib.Path(cache, "emm").glob("*.so")
            before = made.stat().st_mtime_ns
            self.assertEqual(run(*command, XDG_CACHE_HOME=cache, PATH="/nowhere", CXX="",
                                 LD_PRELOAD=str(self.runtime)).returncode, 0)
            self.assertEqual(made.stat().st_mtime_ns, before)


def obstacle():
    if not SIMULATED:
        return "the driver is not the simulated one"
    done = run(PYTHON, "-c", FIND_HEADERS)
    return done.stdout.strip() if done.returncode == 77 else None


if __name__ == "__main__":
    reason = obstacle()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        unittest.main(verbosity=2)
