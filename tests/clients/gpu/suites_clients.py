#!/usr/bin/env python3
"""Other people's own tests and sample programs, natively and under `emm run`. Needs a GPU.

    suites_clients.py FOLDER [--only SUITE,...] [--on WAY]... [--fetch] [--timeout S] [PYTEST-OPTION...]

The tests are those of the releases that are installed: Numba's come with numba-cuda, others are in checkouts of rmm, cupy,
cuda-python and pytorch below the folder that EMM_TEST_SUITES names (default: FOLDER/suites). With --fetch, pip brings the
packages that are missing, into an environment of its own beside the installed ones, and git the checkouts; without, a suite
is skipped by name. Checkouts are only read, and nothing of them is part of emm. All ways of a suite run at the same time, but in turn where its tests ask
how much memory is free. First there is a row for each way, then each test that passes natively and not with emm, with what it says; in
the end one table for tests/gpu/RESULTS.md. Ends with 1 if a test differs without a reason that is listed here, if a run was
cut off, or if emm served nothing. The build is EMM_BUILD (default: build-gpu).
"""
import argparse
import concurrent.futures
import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest_suite
import sample_programs

ROOT = pathlib.Path(__file__).resolve().parents[3]
EMM = pathlib.Path(os.environ.get("EMM_BUILD", ROOT / "build-gpu")).resolve() / "tools/emm/emm"
WAYS = {"natively": [], **{plugin: ["--plugin", plugin] for plugin in ("passthrough", "pool", "pool:growth=segment", "async")},
        "pool, --limit 8GiB": ["--plugin", "pool", "--limit", "8GiB"]}


@dataclasses.dataclass(frozen=True)
class Source:
    """A checkout of the release that is installed."""
    address: str
    package: str  # of Python, whose version it has
    tag: str
    folders: tuple
    distribution: str = ""  # that has the package, where several have a part of it


SOURCES = {
    # Release 26.10.0 is tagged v26.10.00.
    "rmm": Source("https://github.com/rapidsai/rmm", "rmm", "v{}0", ("python/rmm/rmm/tests",)),
    "cupy": Source("https://github.com/cupy/cupy", "cupy", "v{}", ("tests", "examples")),
    "cuda-python": Source("https://github.com/NVIDIA/cuda-python", "cuda.core", "cuda-core-v{}",
                          ("cuda_core/tests", "cuda_core/examples", "cuda_python_test_helpers"), "cuda-core"),
    "pytorch": Source("https://github.com/pytorch/pytorch", "torch", "v{}", ("test",)),
}
# Where pip finds a module whose name is another one.
PACKAGES = {"rmm": "rmm-cu13", "cupy": "cupy-cuda13x", "cuda.core": "cuda-core[cu13]", "numba.cuda": "numba-cuda[cu13]",
            "numba": "numba-cuda[cu13]"}


@dataclasses.dataclass(frozen=True)
class Suite:
    name: str
    needs: tuple  # Python packages
    tests: tuple = ()  # files and folders below EMM_TEST_SUITES; of samples, patterns
    options: tuple = ()  # of pytest
    in_turn: bool = False  # otherwise the ways would see each other's memory
    path: str = ""  # below EMM_TEST_SUITES, for Python to import from
    samples: bool = False  # programs, each of which is a test: it has to end with status 0, and to print the same
    differs: tuple = ()  # what may: names of tests, part of the way's name, and the reason


# CuPy's tests of memory, streams, graphs and arrays, on one device; its other tests are about kernels.
CUPY = "cupy/tests/cupy_tests"
QUIET = ("-W", "ignore", "-k", "not TestDeviceSwitch")
NUMBA = "numba.cuda.tests."
# The tests that torch_suite_clients.py takes of PyTorch's own, in pytest's language.
TORCH = " or ".join(("alloc", "memory", "oom", "out_of", "caching", "cached", "pool", "graph", "snapshot", "segment", "garbage", "gc_",
                     "stream", "record", "event", "checkpoint", "pin", "ipc"))
SUITES = [
    Suite("RMM", ("rmm", "numba"), ("rmm/python/rmm/rmm/tests",)),
    Suite("CuPy's memory", ("cupy",), (f"{CUPY}/cuda_tests/test_memory.py",), QUIET, in_turn=True, differs=(
        (("test_free_all_blocks_large_chunk", "test_free_bytes"), "",
         "CUDA's pool makes another request fail until it is trimmed, emm's does not"),
        (("test_free_bytes2", "test_total_bytes2", "test_total_bytes_stream"), "passthrough", "passthrough keeps no freed memory"))),
    Suite("CuPy", ("cupy",), (*(f"{CUPY}/cuda_tests/{name}" for name in (
        "memory_hooks_tests", "test_device.py", "test_driver.py", "test_graph.py", "test_memory_hook.py",
        "test_pinned_memory.py", "test_runtime.py", "test_stream.py", "test_texture.py")),
        *(f"{CUPY}/core_tests/{name}" for name in (
            "test_dlpack.py", "test_multithreading.py", "test_ndarray.py", "test_ndarray_copy_and_view.py",
            "test_ndarray_cuda_array_interface.py", "test_ndarray_get.py", "test_ndarray_owndata.py"))),
          QUIET),
    Suite("Numba", ("numba.cuda", "cffi", "filecheck", "psutil"), options=(
        "-p", "numba_suite", "-o", "consider_namespace_packages=true", "--pyargs", NUMBA + "cudadrv", *(NUMBA + "cudapy." + name for name in (
            "test_array", "test_array_methods", "test_blackscholes", "test_cuda_array_interface", "test_device_func", "test_gufunc",
            "test_ipc", "test_matmul", "test_multigpu", "test_multiprocessing", "test_multithreads", "test_reduction", "test_slicing",
            "test_transpose")),
        # They take more managed memory than the device has, which may hang a GPU.
        "-k", "not test_managed_alloc_driver"), differs=(
            (("test_ipc_array", "test_ipc_handle", "test_ipc_handle_serialization", "test_staged"), "async",
             "memory of cuMemAllocAsync has no handle of cuIpcGetMemHandle"),
            (("test_ipc_array", "test_staged"), "", "a new process has 4 s to answer, too little where all ways start theirs at the same time"))),
    # Its samples are a suite of their own, and so are the tests with several processes, which take most of the time.
    Suite("cuda.core", ("cuda.core",), ("cuda-python/cuda_core/tests",), ("-k", "not test_example and not memory_ipc"), differs=(
        (("test_concurrent_eviction_does_not_delete_replaced_file",), "", "two processes race for a file, and no memory is in it"),)),
    Suite("cuda.core's processes", ("cuda.core",), ("cuda-python/cuda_core/tests/memory_ipc",)),
    Suite("PyTorch", ("torch",), ("pytorch/test/test_cuda.py",), ("-k", TORCH), in_turn=True, path="pytorch/test", differs=(
        (("test_graph_concurrent_replay",), "", "it wants two graphs to corrupt each other, which is a matter of time"),
        (("test_graph_memory_stats_and_use_result_after_destroy_graph", "test_memory_stats_of_multiple_generators_and_graphs"), "",
         "it also counts what the graphs of the test above hold, if that one has failed"))),
    Suite("samples of cuda.core", ("cuda.core",), ("cuda-python/cuda_core/examples/*.py",), samples=True),
    Suite("samples of CuPy", ("cupy",), ("cupy/examples/*/*.py",), samples=True),
]


def find_spec(module):
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:  # for a package above it
        return None


def obstacle(suite, folder):
    """The reason why a suite cannot run, or nothing."""
    for module in ("pytest", *suite.needs):
        if find_spec(module) is None:
            return f"{module} is not installed"
    missing = [name for name in suite.tests if not list(folder.glob(name))]
    return f"there is no {folder / missing[0]}" if missing else ""


def reason_for(suite):
    def find(way, test):
        return next((reason for names, part, reason in suite.differs
                     if pytest_suite.name_of(test) in names and part in way), "")
    return find


def run_suite(suite, chosen, sources, folder, timeout, options):
    def run(way):
        prefix = [str(EMM), "run", *WAYS[way], "--"] if WAYS[way] else []
        log = folder / f"suite-{suite.name}-{''.join(c if c.isalnum() else '-' for c in way)}.jsonl"
        if suite.samples:
            return sample_programs.run(log, prefix, sorted(program for name in suite.tests for program in sources.glob(name)), timeout)
        variables = {"PYTHONPATH": str(sources / suite.path)} if suite.path else {}
        return pytest_suite.run(log, prefix, [*suite.options, *options, *(str(sources / name) for name in suite.tests)], variables, timeout)
    with concurrent.futures.ThreadPoolExecutor(1 if suite.in_turn else len(chosen)) as ways:
        return dict(zip(chosen, ways.map(run, chosen)))


def fetch(wanted, sources, folder):
    """Brings what is missing, and goes on in the environment that has it."""
    needed = {module for suite in wanted for module in ("pytest", *suite.needs) if find_spec(module) is None}
    if needed:
        environment = folder.resolve() / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", environment], check=True)
        python = environment / "bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        *sorted({PACKAGES.get(module, module) for module in needed})], check=True)
        os.execv(python, [str(python), "-B", *sys.argv])
    for name, source in SOURCES.items():
        used = any(test.startswith(name + "/") for suite in wanted for test in suite.tests)
        if used and not (sources / name).exists() and find_spec(source.package):
            clone(source, sources / name)


def clone(source, to):
    name = source.distribution or importlib.metadata.packages_distributions()[source.package][0]
    version = importlib.metadata.version(name).partition("+")[0]
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", "--filter=blob:none", "--sparse", "--branch", source.tag.format(version),
                    source.address, to], check=True)
    subprocess.run(["git", "-C", to, "sparse-checkout", "set", *source.folders], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(suite.name for suite in SUITES))
    parser.add_argument("--on", action="append", choices=list(WAYS)[1:], help="a way beside the native one; without any, all of them")
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--timeout", type=float, default=300)
    wish, options = parser.parse_known_args()
    if unknown := set(wish.only.split(",")) - {suite.name for suite in SUITES}:
        parser.error(f"--only: no suite is called {', '.join(sorted(unknown))}")
    wish.folder.mkdir(parents=True, exist_ok=True)
    sources = pathlib.Path(os.environ.get("EMM_TEST_SUITES") or wish.folder / "suites").resolve()
    wanted = [suite for suite in SUITES if suite.name in wish.only.split(",")]
    if wish.fetch:
        fetch(wanted, sources, wish.folder)
    good, results, chosen = True, {}, ("natively", *(wish.on or WAYS))
    print(pytest_suite.HEADING)
    for suite in wanted:
        if reason := obstacle(suite, sources):
            print(f"skipped: {suite.name}: {reason}")
            continue
        results[suite.name] = run_suite(suite, [way for way in WAYS if way in chosen], sources, wish.folder.resolve(), wish.timeout, options)
        good = pytest_suite.compare(suite.name, results[suite.name], reason_for(suite)) and good
    if not results:
        return 77
    print("\n" + pytest_suite.table(results, {suite.name: reason_for(suite) for suite in SUITES}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
