#!/usr/bin/env python3
"""numba_clients.py FOLDER [--only NAME,...] [--whole | --rest | --pairs] [--rounds N] [--jobs N]
                    [--timeout S]

Numba's own suite (python -m numba.runtests) with its built-in memory manager, with a plain plugin
in Python over cuMemAlloc, and with emm: its memory tests, one manager after the other, and what an
allocation costs; or with --whole all of its tests, with --rest those that are no memory tests, in N
processes, on the first, the plain and emm's pool. What a manager failed and the built-in one did not
runs again by itself. EMM_TEST_NUMBA names a folder that is put on PYTHONPATH, for what an
installation lacks (filecheck, names that NumPy has removed since); cffi is needed too.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
MANAGERS = {
    "built-in": {},
    "plain": {"NUMBA_CUDA_MEMORY_MANAGER": "plain_manager"},
    "passthrough": {"NUMBA_CUDA_MEMORY_MANAGER": "emm.numba", "EMM_PLUGIN": "passthrough"},
    "pool": {"NUMBA_CUDA_MEMORY_MANAGER": "emm.numba", "EMM_PLUGIN": "pool"},
    "pool:growth=segment": {"NUMBA_CUDA_MEMORY_MANAGER": "emm.numba", "EMM_PLUGIN": "pool:growth=segment"},
    "emm on CuPy": {"NUMBA_CUDA_MEMORY_MANAGER": "emm.numba_on_cupy"},
}
WHOLE = ["built-in", "plain", "pool"]
TESTS = "numba.cuda.tests"
PAIRS = """
import time
from numba import cuda
context = cuda.current_context()
best = {}
for what, make in (("memalloc", lambda: context.memalloc(4096)),
                   ("device_array", lambda: cuda.device_array(512)),
                   ("pinned_array", lambda: cuda.pinned_array(512))):
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(1000):
            make()
        spent = (time.perf_counter() - begin) * 1000
        best[what] = min(best.get(what, spent), spent)
print(*(f"{spent:.2f}" for spent in best.values()))
"""
MEMORY = [f"{TESTS}.{name}" for name in (
    "cudadrv", "cudapy.test_ipc", "cudapy.test_cuda_array_interface", "cudapy.test_multithreads",
    "cudapy.test_multiprocessing")]
# They take more managed memory than the device has, which may hang a GPU.
LEFT_OUT = "test_managed_alloc_driver"


def environment(manager):
    path = [str(HERE), os.environ.get("EMM_TEST_NUMBA", ""), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": ":".join(filter(None, path)),
            "PYTHONDONTWRITEBYTECODE": "1", **MANAGERS[manager]}


def tests_of(modules):
    """The identifiers behind names of modules, less those that are left out."""
    done = subprocess.run([sys.executable, "-m", "numba.runtests", "-l", *modules], text=True,
                          env=environment("built-in"), capture_output=True, check=False,
                          timeout=120)
    found = re.findall(rf"^{re.escape(TESTS)}\S+$", done.stdout, re.M)
    if not found:
        sys.exit(f"numba.runtests lists no tests:\n{done.stdout}{done.stderr}")
    return [name for name in found if LEFT_OUT not in name]


def start(manager, arguments, log):
    with open(log, "w", encoding="utf-8") as file:
        return subprocess.Popen([sys.executable, "-m", "numba.runtests", "-v", *arguments],
                                env=environment(manager), stdout=file, stderr=subprocess.STDOUT)


def finish(process, log, timeout, begin):
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return summary(log.read_text(errors="replace"), process.returncode, time.monotonic() - begin)


# A test with a docstring reports its outcome on the docstring's line.
LINE = re.compile(r"^\w+ \(([^)]+)\)(?:\n.*?)? \.\.\. .*?"
                  r"(ok|FAIL|ERROR|skipped .*|expected failure)$", re.M)


def summary(text, status, wall):
    """The last lines of unittest; if it was stopped, the lines until then."""
    ran = re.search(r"^Ran (\d+) tests? in ([\d.]+)s", text, re.M)
    lines = LINE.findall(text)
    bad = {name for name, outcome in lines if outcome in ("FAIL", "ERROR")}
    bad |= set(re.findall(r"^(?:ERROR|FAIL): \w+ \(([^)]+)\)", text, re.M))
    skips = sorted((name, outcome[len("skipped "):]) for name, outcome in lines
                   if outcome.startswith("skipped"))
    found = {"tests": len(lines), "seconds": wall, "wall": round(wall, 1), "failed": len(bad),
             "skipped": len(skips), "finished": ran is not None, "status": status,
             "bad": sorted(bad), "skips": skips}
    if ran:
        # Failures and errors are counted elsewhere: here each failed part of a test counts as one.
        skipped = re.search(r"\bskipped=(\d+)", text[ran.end():])
        found.update(tests=int(ran.group(1)), seconds=float(ran.group(2)),
                     skipped=int(skipped.group(1)) if skipped else 0)
    return found


def table(title, results):
    print(f"\n{title}\n\n| manager | tests | passed | failed | skipped | seconds |")
    print("|---|---|---|---|---|---|")
    for manager, found in results.items():
        passed = found["tests"] - found["failed"] - found["skipped"]
        note = "" if found["finished"] else " (ended early)"
        print(f"| {manager}{note} | {found['tests']} | {passed} | {found['failed']} "
              f"| {found['skipped']} | {found['seconds']:.1f} |")


def differences(results):
    reference = results.get("built-in")
    for manager, found in results.items():
        for name in found["bad"]:
            same = manager != "built-in" and reference and name in reference["bad"]
            print(f"{manager}: failed {name}{', as with the built-in one' if same else ''}")
        if reference and manager != "built-in":
            more = sorted(set(map(tuple, found["skips"])) - set(map(tuple, reference["skips"])))
            for name, reason in more:
                print(f"{manager}: skipped {name}: {reason}")


def run_all(out, kind, names, arguments, timeout, rounds=1):
    """The last round's results, with the median of all rounds' seconds.

    The first process on a machine is slower than those that follow: each round begins with another
    manager, and with several rounds there is one before them that does not count.
    """
    results, seconds = {}, {name: [] for name in names}
    for number in range(rounds + (rounds > 1)):
        for manager in names[number % len(names):] + names[:number % len(names)]:
            log = out / re.sub("[ :=]", "-", f"numba-{kind}-{manager}.log")
            begin = time.monotonic()
            found = finish(start(manager, arguments, log), log, timeout, begin)
            results[manager] = found
            if rounds == 1 or number > 0:
                seconds[manager].append(found["seconds"])
            print(f"{manager}: {found['tests']} tests in {found['wall']} s", flush=True)
    for manager in names:
        results[manager]["rounds"] = seconds[manager]
        results[manager]["seconds"] = statistics.median(seconds[manager])
    return results


def pairs(names):
    """Microseconds of an allocation that is dropped at once, the best of three rounds of 1,000."""
    print("\n| manager | memalloc, us | device_array, us | pinned_array, us |\n|---|---|---|---|")
    for manager in names:
        done = subprocess.run([sys.executable, "-c", PAIRS], env=environment(manager), text=True,
                              capture_output=True, check=False, timeout=100)
        print(f"| {manager} | {' | '.join(done.stdout.split()) or done.stderr[-500:]} |", flush=True)


def again(out, results, timeout):
    """Tests that the built-in manager passed and another did not, by themselves, with both."""
    good = set() if "built-in" not in results else set(results["built-in"]["bad"])
    for manager in [name for name in results if name != "built-in"]:
        suspects = [name for name in results[manager]["bad"] if name not in good]
        if suspects:
            found = run_all(out, f"again-{manager}", ["built-in", manager], suspects, timeout)
            table(f"Again, by themselves: {len(suspects)} that failed with {manager}", found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--timeout", type=float, default=300)
    wish = parser.parse_args()
    for name in ("numba", "cffi"):
        if importlib.util.find_spec(name) is None:
            print(f"skipped: {name} is not installed")
            return 77
    names = [name for name in MANAGERS if name != "emm on CuPy" or importlib.util.find_spec("cupy")]
    if wish.only:
        names = wish.only.split(",")
    if wish.pairs:
        pairs(names)
        return 0
    kind = "whole" if wish.whole else "rest" if wish.rest else "memory"
    if wish.whole or wish.rest:
        names = names if wish.only else WHOLE
        less = set(tests_of(MEMORY)) if wish.rest else ()
        tests = [name for name in tests_of([TESTS]) if name not in less]
        arguments, title = ["-m", str(wish.jobs), *tests], f"{wish.jobs} processes"
    else:
        arguments, title = tests_of(MEMORY), "one process"
    results = run_all(wish.folder, kind, names, arguments, wish.timeout, wish.rounds)
    table(f"Numba's suite, {kind}, {title}", results)
    differences(results)
    if kind == "memory":
        pairs(names)
    again(wish.folder, results, wish.timeout)
    (wish.folder / f"numba-{kind}.json").write_text(json.dumps(results, indent=1))
    return 0 if all(found["finished"] for found in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
