#!/usr/bin/env python3
"""rmm_suite.py FOLDER CHECKOUT [--timeout S] [PYTEST-OPTION...]

RMM's own Python tests, python/rmm/rmm/tests of a checkout of github.com/rapidsai/rmm, with RMM's CudaMemoryResource
and with emm in its place (rmm_on_emm.py); then what failed with RMM's own, and what passes with it and not with emm, each
with the reason. The checkout is only read; its tests should be of the release of RMM that is installed. pytest and
numba-cuda are needed. Ends with 1 if a run was cut off, if emm served nothing, or if a test passes with RMM's own and not
with emm.
"""
import argparse
import importlib.util
import pathlib
import sys

import pytest_suite

RESOURCES = {
    "RMM's": {"RMM_SUITE_ON": "native"},
    **{plugin: {"RMM_SUITE_ON": "emm", "EMM_PLUGIN": plugin} for plugin in ("passthrough", "async", "pool")},
}


def obstacle(tests):
    """The reason why the suite cannot run, or None."""
    for module in "rmm", "pytest", "numba":
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    return None if tests.is_dir() else f"there is no {tests}"


def versions(checkout):
    import rmm
    version = checkout / "VERSION"
    of_tests = version.read_text().strip() if version.is_file() else "an unknown release"
    print(f"RMM {rmm.__version__}, tests of {of_tests}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=300)
    wish, options = parser.parse_known_args()
    tests = wish.checkout / "python/rmm/rmm/tests"
    reason = obstacle(tests)
    if reason:
        print(f"skipped: RMM's own tests: {reason}")
        return 77
    versions(wish.checkout)
    folder = wish.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(pytest_suite.HEADING)
    results = {name: pytest_suite.run(folder / f"rmm-suite-{name}.jsonl", [], [*options, str(tests)], environment,
                                      wish.timeout, "rmm_on_emm")
               for name, environment in RESOURCES.items()}
    return 0 if pytest_suite.compare("RMM's resources", results) else 1


if __name__ == "__main__":
    sys.exit(main())
