#!/usr/bin/env python3
"""rmm_plugin_test.py SOURCES CUDA_INCLUDE CACHE EMM TRAFFIC PROMISES ASYNC COMPILER...: the plugin rmm, built against librmm.

With the librmm of the Python registry, in CACHE: its file is as plugin.h asks, with a CUDA runtime inside, and making a
manager fails in one sentence on the simulated driver, where NVIDIA's runtime does not work.

With EMM_TEST_RMM, a checkout of RMM: its resources are built from there with plugin-rmm/runtime.cpp in the place of NVIDIA's
runtime. The conformance suite finds the exceptions that plugins/rmm/README.md explains, and no others; and random traffic
finds no memory that is handed out early. Two tests of other plugins pass: of PROMISES, and of ASYNC.

Exits with 77, to be skipped, where librmm, CUDA's runtime or its headers are missing.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from rmm_test import knows_rmm, obstacle

HERE = pathlib.Path(__file__).resolve().parent
SOURCES, CUDA, CACHE, EMM, TRAFFIC, PROMISES, ASYNC = (pathlib.Path(word) for word in sys.argv[1:8])
COMPILER = sys.argv[8:]
RMM, LOGGER = CACHE / "rmm/librmm", CACHE / "rmm/rapids_logger"
OF_RMM, OF_LOGGER = RMM / "lib64/librmm.so", LOGGER / "lib64/librapids_logger.so"
RUNTIME = next((CACHE / "runtime/cuda-13").rglob("libcudart_static.a"), None)
CHECKOUT = os.environ.get("EMM_TEST_RMM")
# The parts of RMM's sources that its pool, arena, binning and async are made of.
PARTS = [*"aligned cuda_device cuda_stream_view error logger runtime_shutdown".split(),
         *(f"mr/{name}_memory_resource" for name in ("pool", "arena", "binning", "fixed_size", "cuda_async",
                                                    "cuda_async_view")),
         *(f"mr/detail/{name}_memory_resource_impl" for name in ("pool", "arena", "binning", "fixed_size", "cuda_async"))]

# The stand-in is a library, which NVIDIA's runtime in a plugin is not.
STAND_IN = {"library/dependencies"}
# A pool or an arena gives no driver memory back, and does not join pieces.
KEEPS = {"cleanup/no-memory", "cleanup/pressure", "cleanup/trim"}
AHEAD = {f"cleanup/{what}@{progress}" for what in ("ended-uses", "ended-streams") for progress in
         ("eager", "lazy", "random")}
# RMM goes on if an event cannot be made or recorded, or a stream not be waited for.
IGNORES = {"faults/memalloc", "faults/unordered", "faults/memfree", "faults/order"}
# With 256 MiB, as in these cases, the bins of its beginning do not fit.
BINS = {"memory/exhaustion", "memory/failed", "threads/waits-alone", "threads/beside-trim"}
# An arena takes half of the 256 MiB of these cases.
HALF = {"memory/failed", "threads/waits-alone", "threads/beside-trim"}
EXCEPTIONS = {
    "": KEEPS | IGNORES | {"memory/sizes"},
    ":max=4GiB": AHEAD | IGNORES | {"cleanup/trim"},
    ":resource=arena": KEEPS | HALF | {"memory/sizes", "faults/order"},
    ":resource=async": set(),
    ":resource=binning": KEEPS | AHEAD | IGNORES | BINS | {"memory/sizes", "faults/create"},
}


def run(*words, **variables):
    return subprocess.run([str(word) for word in words], env={**os.environ, **variables}, text=True, capture_output=True,
                          timeout=280, check=False)


def compiled(output, sources, includes, system_includes, *rest):
    done = run(*COMPILER, "-std=c++20", "-DNDEBUG", "-fPIC", "-shared", *(f"-I{folder}" for folder in includes),
               *(word for folder in system_includes for word in ("-isystem", folder)), *sources, *rest, "-o", output)
    if done.returncode != 0:
        raise AssertionError(f"{output.name} does not build: {done.stderr[:2000]}")
    return output


def headers(of_rmm):
    return [of_rmm, RMM / "include/rapids", RMM / "include", LOGGER / "include", CUDA]


def plugin(folder, of_rmm, *libraries):
    """libemm-rmm.so in a folder, as Meson builds it."""
    plugins = SOURCES / "plugins"
    sources = [*sorted((plugins / "rmm").glob("*.cpp")), *sorted((plugins / "common").glob("*.cpp"))]
    return compiled(folder / "libemm-rmm.so", sources, [plugins, SOURCES / "include"], headers(of_rmm), "-Wall", "-Wextra",
                    "-Wpedantic", "-Werror", "-fvisibility=hidden", '-DEMM_VERSION="0"',
                    f"-Wl,--version-script={plugins / 'plugin.map'}", *libraries, OF_LOGGER,
                    *(f"-Wl,-rpath,{pathlib.Path(library).parent}" for library in (*libraries, OF_LOGGER)),
                    "-ldl", "-lrt", "-lpthread")


def simulated_driver():
    return next(path for folder in os.environ["LD_LIBRARY_PATH"].split(":")
                if (path := pathlib.Path(folder, "libcuda.so.1")).is_file())


def built_from_checkout(folder):
    """librmm.so and the stand-in for NVIDIA's runtime, in a folder."""
    runtime = compiled(folder / "librmm-runtime.so", [HERE / "plugin-rmm/runtime.cpp"], [], [CUDA], simulated_driver(),
                       "-Wl,-soname,librmm-runtime.so")
    sources = [pathlib.Path(CHECKOUT, "cpp/src", f"{name}.cpp") for name in PARTS]
    rmm = compiled(folder / "librmm.so", sources, [], headers(pathlib.Path(CHECKOUT, "cpp/include")), "-O1",
                   "-DRMM_LOG_ACTIVE_LEVEL=RAPIDS_LOGGER_LOG_LEVEL_OFF", runtime, OF_LOGGER, "-Wl,-soname,librmm.so")
    return rmm, runtime


class Plugin(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="emm-rmm-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_its_file_is_a_plugins_with_a_cuda_runtime_inside_and_a_driver_without_that_is_refused(self):
        made = plugin(self.folder, RMM / "include", OF_RMM, RUNTIME)
        checked = run(EMM, "check", made, "--filter", "library")
        self.assertRegex(checked.stdout, r"5 cases: 5 passed", checked.stdout)
        refused = run(EMM, "replay", "--generate", "train", "--plugin", made)
        self.assertNotEqual(refused.returncode, 0)
        self.assertRegex(refused.stdout + refused.stderr, "create failed for device 0, context 1: RMM's CUDA runtime does "
                         "not work on this driver: cudaErrorCallRequiresNewerDriver")

    def test_values_that_rmm_does_not_take_are_refused_where_the_plugin_is_chosen(self):
        made = plugin(self.folder, RMM / "include", OF_RMM, RUNTIME)
        for options, sentence in {
                "resource=arena,max=1000000": "option max: expected at least 1MiB, of which an arena is made, found 1000000",
                "resource=binning,max=255": "option max: expected at least 256 bytes, found 255",
                "max=1GiB,initial=2GiB": "option initial: expected no more than max, which is 1GiB, found 2GiB",
                "resource=arena,initial=1GiB": "option initial is for pool and binning",
                "resource=async,max=1GiB": "options initial and max are not for async"}.items():
            with self.subTest(options=options):
                said = run(EMM, "info", f"{made}:{options}")
                self.assertNotEqual(said.returncode, 0)
                self.assertIn(sentence, said.stdout + said.stderr)


@unittest.skipUnless(CHECKOUT, "EMM_TEST_RMM names no checkout of RMM")
class FromCheckout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="emm-rmm-")
        cls.addClassCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        cls.plugin = plugin(folder, pathlib.Path(CHECKOUT, "cpp/include"), *built_from_checkout(folder))

    def test_the_conformance_suite_finds_the_exceptions_that_are_explained_and_no_others(self):
        for options, exceptions in EXCEPTIONS.items():
            with self.subTest(options=options or "pool"):
                said = run(EMM, "check", f"{self.plugin}{options}").stdout
                self.assertRegex(said, r"(?m)^verdict: ")
                self.assertEqual(set(re.findall(r"(?m)^FAIL  (\S+)", said)), exceptions | STAND_IN)

    def test_a_recorded_training_loses_no_memory(self):
        said = run(EMM, "replay", "--generate", "train", "--touch", "--plugin", self.plugin).stdout
        self.assertRegex(said, r"(?m)^\S+libemm-rmm\.so +\d+ +0 .* 0 B +0 ")

    def check_promise(self, tests, promise, resources):
        for resource in resources:
            for progress in "eager", "lazy", "random":
                with self.subTest(resource=resource, progress=progress):
                    said = run(tests, promise, EMM_SIM=f"race=count,memory=8GiB,progress={progress}",
                               EMM_PLUGIN=f"{self.plugin}:resource={resource}")
                    self.assertIn("All tests passed", said.stdout, said.stderr)

    def test_a_request_waits_for_memory_that_another_thread_is_giving_back(self):
        self.check_promise(PROMISES, "a request waits for memory that another thread is giving back",
                           ["pool", "arena,max=6GiB", "binning", "async"])

    def test_a_trim_gives_back_memory_whose_free_a_capture_has_postponed(self):
        self.check_promise(ASYNC, "a trim gives back memory whose free a capture has postponed", ["async"])

    def test_threads_get_no_memory_that_others_still_use(self):
        version = tuple(map(int, pathlib.Path(CHECKOUT, "VERSION").read_text().split(".")[:2]))
        # Before 26.10 the lists of two streams are joined without an event that is behind both.
        resources = ["arena", "async", *(["pool", "binning"] if version >= (26, 10) else [])]
        for resource in resources:
            for progress in "eager", "lazy", "random":
                with self.subTest(resource=resource, progress=progress):
                    said = run(TRAFFIC, "steps=20000", "captures=0", "read_back=1", EMM_SIM=f"progress={progress}",
                               EMM_PLUGIN=f"{self.plugin}:resource={resource}")
                    # RMM keeps its memory, unless the driver's pool has it: then the suite finds only this, at the end.
                    if resource == "async":
                        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
                    else:
                        self.assertRegex(said.stdout + said.stderr, "in the end: expected 0 bytes after trims, found")
                    self.assertNotIn("race", said.stdout + said.stderr)


if __name__ == "__main__":
    reason = obstacle(CUDA, OF_RMM, OF_LOGGER, RUNTIME)
    if not reason and not knows_rmm(COMPILER, headers(RMM / "include")):
        reason = f"{' '.join(COMPILER)} does not compile RMM's headers"
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
