#!/usr/bin/env python3
"""Programs that know nothing of emm, on a real GPU: natively and under `emm run`.

    run_clients.py FOLDER [--only NAME,...] [--times N] [--list]

What a program prints must be the same with emm as without, but for lines that begin with `figure`: those are
measured, and the table shows the median of the runs. The ways to run a program take turns, but for a long
one, whose ways run at the same time and may not keep more host memory than natively. `peak` is the
most device memory that the machine had in use, less what it had before. Needs a GPU, and the build that
EMM_BUILD names (default: build-gpu), with the targets `emm`, `pairs` and `client`.
"""
import argparse
import concurrent.futures
import ctypes
import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time

import numba_clients

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.append(str(ROOT / "tests/interpose"))
from known_differences import why_different  # noqa: E402
BUILD = pathlib.Path(os.environ.get("EMM_BUILD", ROOT / "build-gpu")).resolve()
EMM = BUILD / "tools/emm/emm"
MIB = 1 << 20
FIGURE = "figure "


@dataclasses.dataclass(frozen=True)
class Way:
    """To run a program: natively, or on a plugin."""

    name: str
    plugin: str = ""
    environment: tuple = ()
    options: tuple = ()  # of emm run

    def command(self, program):
        return [EMM, "run", "--plugin", self.plugin, *self.options, "--", *program] if self.plugin else program


def plugins(*specs, **environment):
    """Natively and on each of these plugins, with some variables set."""
    more = tuple(environment.items())
    return (Way("natively", "", more), *(Way(spec, spec, more) for spec in specs))


def limited(*specs, limit="8GiB"):
    """On each of these plugins, on a device of that size."""
    return tuple(Way(f"{spec}, --limit {limit}", spec, options=("--limit", limit)) for spec in specs)


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    command: tuple
    ways: tuple = plugins("pool")
    needs: str = ""  # a Python package
    times: int = 1
    usual: bool = True  # runs without being asked for by name
    timeout: float = 240
    statuses: tuple = (0,)  # good ones, if the first way has the same
    left_out: dict = dataclasses.field(default_factory=dict)  # plugins that skip it, and why
    together: bool = False  # its ways run at the same time, so peaks mean nothing


def script(name, *arguments):
    return (sys.executable, "-B", str(HERE / "programs" / name), *arguments)


def driver_client(specs):
    """The cases of the client in tests/interpose. Its status is 1 if the driver differs from what is documented."""
    client = BUILD / "tests/interpose/client"
    if not client.exists():
        return [Program("driver client", (str(client),))]
    listing = subprocess.run([client, "list"], text=True, stdout=subprocess.PIPE, check=True)
    return [Program(f"driver client {case}", (str(client), "dlsym", case),
                    plugins(*(spec for spec in specs if not why_different(case, spec))), statuses=(0, 1),
                    left_out={spec: why_different(case, spec) for spec in specs if why_different(case, spec)})
            for case in listing.stdout.split() if case != "zeroed"]  # which asks for more than CUDA promises


NO_CACHE = (("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),)


def larger_than_its_device(**environment):
    """For a program that needs 12 GiB: where it fits, and on a device of 8 GiB with host memory for the rest."""
    return (*plugins("pool", "managed", **environment),
            Way("pool:spill=8GiB, --limit 8GiB", "pool:spill=8GiB", tuple(environment.items()), ("--limit", "8GiB")))


def programs(folder):
    every = ("pool", "pool:growth=segment", "async", "passthrough")
    return [
        *driver_client(every),
        Program("pairs", (str(BUILD / "tests/interpose/pairs"),), (*plugins(*every), *limited("pool", "passthrough")),
                times=5),
        Program("static runtime", (str(folder / "runtime-static"),), plugins(*every)),
        Program("shared runtime", (str(folder / "runtime-shared"),), plugins(*every)),
        Program("torch", script("torch_features.py"), plugins("pool", "pool:growth=segment", "async"), "torch"),
        # PyTorch itself captures no graph without its cache.
        Program("torch no cache", script("torch_features.py", "streams", "pinned", "threads"),
                plugins("pool", **dict(NO_CACHE)), "torch"),
        Program("torch cudaMallocAsync", script("torch_features.py"),
                plugins("pool", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"), "torch"),
        Program("torch expandable", script("torch_features.py"),
                plugins("pool", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), "torch"),
        Program("torch compiled", script("torch_compiled.py"), needs="torch"),
        Program("torch sharing", script("torch_sharing.py"), needs="torch"),
        Program("torch training", script("torch_training.py"),
                (*plugins("pool"), Way("pool, no cache of PyTorch's", "pool", NO_CACHE)), "torch", times=5),
        Program("transformers", script("transformers_training.py"), needs="transformers"),
        *(Program(f"jax {allocator}", script("jax_training.py"),
                  plugins("passthrough", "pool", XLA_PYTHON_CLIENT_ALLOCATOR=allocator, EMM_DRIVER_METER="1"), "jax",
                  times=5 if allocator == "cuda_async" else 1)
          for allocator in ("default", "platform", "cuda_async")),
        Program("cupy", script("cupy_memory.py"), plugins("pool", "async"), "cupy"),
        Program("cupy spill", script("cupy_spill.py", "12"), larger_than_its_device(), "cupy", times=5),
        Program("torch spill", script("torch_spill.py", "12"), larger_than_its_device(), "torch", times=5),
        Program("torch spill no cache", script("torch_spill.py", "12"), larger_than_its_device(**dict(NO_CACHE)), "torch"),
        Program("tinygrad", script("tinygrad_training.py"), needs="tinygrad"),
        Program("limit", script("limit.py", "8"), (Way("pool:max=8GiB", "pool:max=8GiB"), *limited("pool")), "torch"),
        *(Program(f"{library} to the end of a limit", script("limited_libraries.py", "8", library),
                  limited("passthrough", "pool", "async"), needs)
          for library, needs in (("torch", "torch"), ("torch-expandable", "torch"), ("jax", "jax"), ("cupy", "cupy"),
                                 ("rmm-async", "rmm"), ("cuda.core-pool", "cuda"), ("cuda.core-virtual", "cuda"))),
        *(Program(f"{library} within a limit", command,
                  (Way("natively", "", variables),
                   *(dataclasses.replace(way, environment=variables) for way in limited(*specs, limit=limit))),
                  needs, times=5)
          for library, command, needs, specs, limit, variables in (
              ("jax", script("jax_training.py", "4096", "300"), "jax", ("pool",), "8GiB", ()),
              ("torch-expandable", script("torch_training.py", "--steps", "30"), "torch", ("pool",), "24GiB",
               (("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)),
              *((library, script("pools_computing.py", library), "cupy", specs, "8GiB", ())
                for library, specs in (("rmm-async", ("pool",)), ("cuda.core-virtual", ("pool",)),
                                       # The device's own pool, which a plugin serves.
                                       ("cuda.core-pool", ("pool", "pool:slack=0.5", "async")))))),
        Program("out of memory", script("out_of_memory.py", str(folder / "report.log")),
                (Way("pool, tracked", "pool", (("EMM_LOG", f"error:{folder / 'report.log'}"),),
                     ("--track", "module")),), "cupy"),
        Program("nvidia-smi", ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")),
        Program("numba", (sys.executable, "-B", str(HERE / "run_clients.py"), str(folder), "--numba"),
                needs="numba", timeout=600),
        Program("long training", script("torch_training.py", "--minutes", "8"),
                (*plugins(), Way("pool, no cache of PyTorch's", "pool", NO_CACHE)), "torch", usual=False, timeout=560,
                together=True),
    ]


class Monitor:
    """Device memory in use on the machine's first GPUs, 0 without NVML: this process is not under emm."""

    def __init__(self, devices=1):
        self.devices = [ctypes.c_void_p() for _ in range(devices)]
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            print("there is no NVML: peaks are not known")
            self.nvml, self.devices = None, []
            return
        if self.nvml.nvmlInit_v2() or any(self.nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device))
                                          for number, device in enumerate(self.devices)):
            sys.exit("NVML does not start")

    def used(self):
        total = 0
        for device in self.devices:
            memory = (ctypes.c_ulonglong * 3)()  # total, free, used
            self.nvml.nvmlDeviceGetMemoryInfo(device, memory)
            total += memory[2]
        return total

    def peak_while(self, running, begun, timeout):
        """Watches a process until it ends, and gives the most that was in use beyond `begun`."""
        until, peak = time.monotonic() + timeout, begun
        while running.poll() is None and time.monotonic() < until:
            peak = max(peak, self.used())
            time.sleep(0.02)
        return peak - begun


def read(stream, into):
    into.append(stream.read())


def run(program, way, monitor):
    """One run: status, lines, figures, seconds and peak."""
    environment = {**os.environ, **dict(way.environment)}
    before, begin, said, told = monitor.used(), time.monotonic(), [], []
    with subprocess.Popen([str(part) for part in way.command(program.command)], env=environment, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        readers = [threading.Thread(target=read, args=pair)
                   for pair in ((running.stdout, said), (running.stderr, told))]
        for reader in readers:
            reader.start()
        peak = monitor.peak_while(running, before, program.timeout)
        running.kill()
        for reader in readers:
            reader.join()
    lines = said[0].splitlines()
    figures = {line.split()[1]: float(line.split()[2]) for line in lines if line.startswith(FIGURE)}
    return {"status": running.returncode, "lines": [line for line in lines if not line.startswith(FIGURE)],
            "figures": {**figures, "seconds": time.monotonic() - begin, "peak-MiB": peak / MIB},
            "errors": told[0][-3000:]}


def growth(figures):
    """MiB of host memory, of a program that says how much it had early and late."""
    return figures.get("host-MiB-at-the-end", 0) - figures.get("host-MiB-after-a-fifth", 0)


def verdict(program, found, reference):
    """In a word what came of a run beside the first way's, and whether that is good."""
    if found["status"] not in program.statuses:
        return f"FAILED ({found['status']})", False
    if growth(found["figures"]) > growth(reference["figures"]) + 16:
        return "GROWING", False
    if found["lines"] != reference["lines"] or found["status"] != reference["status"]:
        return "DIFFERENT", False
    if found is not reference:
        return "the same", True
    return f"exit {found['status']}" if found["status"] else "good", True


def medians(runs):
    return {name: statistics.median(found["figures"][name] for found in runs if name in found["figures"])
            for name in runs[0]["figures"]}


def told_figures(mine, first):
    """Each figure with its ratio to the first way's."""
    return ", ".join(f"{name} {value:.5g}" + (f" ({value / first[name]:.3f})" if first.get(name) else "")
                     for name, value in mine.items())


def show_failure(program, way, found, reference):
    print(f"-- {program.name}, {way.name}:")
    for line in found["lines"]:
        if line not in reference["lines"]:
            print(f"   with emm: {line}")
    for line in reference["lines"]:
        if line not in found["lines"]:
            print(f"   natively: {line}")
    print(found["errors"][-1500:], flush=True)


def runs_of(program, times, monitor):
    """By way: the ways take turns, or each turn is all of them together."""
    runs = {way: [] for way in program.ways}
    for number in range(times or program.times):
        first = number % len(program.ways)
        ways = program.ways[first:] + program.ways[:first]
        with concurrent.futures.ThreadPoolExecutor(len(ways) if program.together else 1) as turn:
            for way, found in zip(ways, turn.map(lambda way: run(program, way, monitor), ways)):
                runs[way].append(found)
    return runs


def compare(program, times, monitor):
    """Runs a program in all its ways and prints a row for each; what it gives is for the JSON."""
    runs = runs_of(program, times, monitor)
    reference, rows = runs[program.ways[0]][0], []
    for way, found in runs.items():
        word, good = min((verdict(program, one, reference) for one in found), key=lambda pair: pair[1])
        figures = medians(found)
        print(f"| {program.name} | {way.name} | {word} | {len(found)} "
              f"| {told_figures(figures, medians(runs[program.ways[0]]))} |", flush=True)
        if not good:
            show_failure(program, way, next(one for one in found if not verdict(program, one, reference)[1]), reference)
        rows.append({"program": program.name, "way": way.name, "good": good, "word": word, "figures": figures,
                     "runs": [one["figures"] for one in found], "lines": found[0]["lines"]})
    for plugin, why in program.left_out.items():
        print(f"| {program.name} | {plugin} | left out: {why} | | |", flush=True)
    return rows


def missing(program):
    """The thing that this machine lacks for a program; empty: nothing."""
    if program.needs and importlib.util.find_spec(program.needs) is None:
        return f"{program.needs} is not installed"
    return "" if shutil.which(program.command[0]) else f"{program.command[0]} is not there"


def compile_runtime_programs(folder):
    """The program on the CUDA runtime, which nvcc links statically or shared. Without nvcc they are missing."""
    if shutil.which("nvcc") is None:
        return
    for kind in ("static", "shared"):
        subprocess.run(["nvcc", "-O2", "-arch=native", "-cudart", kind, str(HERE / "programs/runtime.cu"), "-o",
                        str(folder / f"runtime-{kind}")], check=True)


def numba_memory_tests():
    """Numba's own memory tests in this process's environment: how many, and which of them failed."""
    tests = numba_clients.tests_of(numba_clients.MEMORY)
    done = subprocess.run([sys.executable, "-m", "numba.runtests", "-v", *tests], text=True, check=False,
                          env=numba_clients.environment("built-in"), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    found = numba_clients.summary(done.stdout, done.returncode, 0.0)
    print(f"{found['tests']} tests, {found['skipped']} skipped")
    for name in found["bad"]:
        print("failed", name)
    return 0 if found["finished"] else 1


def options(description):
    """The command line of a section whose programs are compared."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", help="names of programs, separated by commas")
    parser.add_argument("--times", type=int, help="runs of each; by default 5 of those that are measured")
    parser.add_argument("--list", action="store_true", help="print the names of the programs")
    return parser


def main():
    parser = options(__doc__.splitlines()[0])
    parser.add_argument("--numba", action="store_true", help=argparse.SUPPRESS)
    wish = parser.parse_args()
    if wish.numba:
        return numba_memory_tests()
    if not wish.list:
        compile_runtime_programs(wish.folder)
    return compare_all(programs(wish.folder.resolve()), parser, wish, Monitor, "run.json")


def compare_all(known, parser, wish, make_monitor, name):
    """The programs that are wished for, one after another: the section's exit status. The JSON goes to `name`."""
    if wish.list:
        print(*(program.name for program in known), sep="\n")
        return 0
    wanted = wish.only.split(",") if wish.only else [program.name for program in known if program.usual]
    if unknown := set(wanted) - {program.name for program in known}:
        parser.error(f"--only: no program is called {', '.join(sorted(unknown))}")
    monitor, rows = make_monitor(), []
    print("| program | way | what it prints | runs | figures (median; ratio to the first way) |\n|---|---|---|---|---|")
    for program in known:
        if program.name not in wanted:
            continue
        if lack := missing(program):
            print(f"| {program.name} | | skipped: {lack} | | |", flush=True)
            continue
        rows += compare(program, wish.times, monitor)
        (wish.folder / name).write_text(json.dumps(rows, indent=1))
    return 0 if rows and all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
