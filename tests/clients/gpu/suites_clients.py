#!/usr/bin/env python3
"""Other people's own tests, natively and under `emm run`. Needs a GPU.

    suites_clients.py FOLDER [--only SUITE,...] [--timeout S] [PYTEST-OPTION...]

EMM_TEST_SUITES names a folder with checkouts, of the releases that are installed: rmm, cupy, cuda-python. They are only
read, and nothing of them is part of emm; a suite that is missing there is skipped by name. All ways of a suite run at the
same time, but in turn where its tests ask how much memory is free. A row for each way, then each test that passes natively and not with emm, with what it says. Ends with 1 if
there is one, if a run was cut off, or if emm served nothing. The build is EMM_BUILD (default: build-gpu).
"""
import argparse
import concurrent.futures
import dataclasses
import importlib.util
import os
import pathlib
import sys

import pytest_suite

ROOT = pathlib.Path(__file__).resolve().parents[3]
EMM = pathlib.Path(os.environ.get("EMM_BUILD", ROOT / "build-gpu")).resolve() / "tools/emm/emm"
WAYS = {"natively": [], **{plugin: ["--plugin", plugin] for plugin in ("passthrough", "pool", "pool:growth=segment", "async")},
        "pool, --limit 8GiB": ["--plugin", "pool", "--limit", "8GiB"]}


@dataclasses.dataclass(frozen=True)
class Suite:
    name: str
    needs: tuple  # Python packages
    tests: tuple  # files and folders below EMM_TEST_SUITES
    options: tuple = ()  # of pytest
    in_turn: bool = False  # otherwise the ways would see each other's memory


# CuPy's tests of memory, streams, graphs and arrays, on one device; its other tests are about kernels.
CUPY = "cupy/tests/cupy_tests"
QUIET = ("-W", "ignore", "-k", "not TestDeviceSwitch")
SUITES = [
    Suite("RMM", ("rmm", "numba"), ("rmm/python/rmm/rmm/tests",)),
    Suite("CuPy's memory", ("cupy",), (f"{CUPY}/cuda_tests/test_memory.py",), QUIET, in_turn=True),
    Suite("CuPy", ("cupy",), (*(f"{CUPY}/cuda_tests/{name}" for name in (
        "memory_hooks_tests", "test_device.py", "test_driver.py", "test_graph.py", "test_memory_hook.py",
        "test_pinned_memory.py", "test_runtime.py", "test_stream.py", "test_texture.py")),
        *(f"{CUPY}/core_tests/{name}" for name in (
            "test_dlpack.py", "test_multithreading.py", "test_ndarray.py", "test_ndarray_copy_and_view.py",
            "test_ndarray_cuda_array_interface.py", "test_ndarray_get.py", "test_ndarray_owndata.py"))),
          QUIET),
    Suite("cuda.core", ("cuda.core",), ("cuda-python/cuda_core/tests",)),
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
    missing = [name for name in suite.tests if not (folder / name).exists()]
    return f"there is no {folder / missing[0]}" if missing else ""


def run_suite(suite, sources, folder, timeout, options):
    def run(way):
        prefix = [EMM, "run", *WAYS[way], "--"] if WAYS[way] else []
        log = folder / f"suite-{suite.name}-{''.join(c if c.isalnum() else '-' for c in way)}.jsonl"
        return pytest_suite.run(log, [str(word) for word in prefix],
                                [*suite.options, *options, *(str(sources / name) for name in suite.tests)], {}, timeout)
    with concurrent.futures.ThreadPoolExecutor(1 if suite.in_turn else len(WAYS)) as ways:
        return pytest_suite.compare(suite.name, dict(zip(WAYS, ways.map(run, WAYS))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(suite.name for suite in SUITES))
    parser.add_argument("--timeout", type=float, default=300)
    wish, options = parser.parse_known_args()
    if unknown := set(wish.only.split(",")) - {suite.name for suite in SUITES}:
        parser.error(f"--only: no suite is called {', '.join(sorted(unknown))}")
    sources = os.environ.get("EMM_TEST_SUITES")
    if not sources:
        print("skipped: other people's tests: EMM_TEST_SUITES names no folder")
        return 77
    wish.folder.mkdir(parents=True, exist_ok=True)
    good, ran = True, 0
    print(pytest_suite.HEADING)
    for suite in SUITES:
        if suite.name not in wish.only.split(","):
            continue
        if reason := obstacle(suite, pathlib.Path(sources)):
            print(f"skipped: {suite.name}'s tests: {reason}")
            continue
        ran += 1
        good = run_suite(suite, pathlib.Path(sources).resolve(), wish.folder.resolve(), wish.timeout, options) and good
    return (0 if good else 1) if ran else 77


if __name__ == "__main__":
    sys.exit(main())
