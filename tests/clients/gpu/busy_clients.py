#!/usr/bin/env python3
"""Six programs that keep the GPU busy (programs/busy), on PyTorch's allocator and on emm's pool.

    busy_clients.py FOLDER [--only NAME,...] [--ways WAY,...] [--times 5] [--seconds 25]
    busy_clients.py FOLDER --record [--only NAME,...]        FOLDER/recordings/NAME.csv.gz, for emm replay

A way is native, expandable, a plugin behind PyTorch (emm.torch) such as pool or pool:slack=0, or run:PLUGIN, which is
`emm run` with PyTorch's cache off, so that each free is one without a stream. The ways take turns, each run is a
process of its own, and the next one imports PyTorch while one is timed. Prints a row for each way: peaks of what was
reserved and live, and the median of the steps a second. Needs a GPU and the build that EMM_BUILD names (build-gpu).
"""
import argparse
import csv
import gzip
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAMS = ("generation", "experts", "lengths", "detector", "unet", "graph")  # the longest first
WAYS = ("native", "expandable", "pool")
LONGEST = 60_000  # events of a recording
GIB = 1 << 30


def build():
    return pathlib.Path(os.environ.get("EMM_BUILD", ROOT / "build-gpu")).resolve()


def devices():
    """The GPUs, as CUDA_VISIBLE_DEVICES names them."""
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        return os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    told = subprocess.run(["nvidia-smi", "-L"], text=True, stdout=subprocess.PIPE, check=False).stdout if shutil.which("nvidia-smi") else ""
    return [str(number) for number in range(len(told.splitlines()))]


def on(device):
    """The variables of a program that uses this GPU alone; None: whatever there is."""
    return {} if device is None else {"CUDA_VISIBLE_DEVICES": device}


def command(program, way, *more):
    """The command, and the variables that it needs besides."""
    script = [sys.executable, "-B", str(HERE / "programs/busy" / f"{program}.py"), *more]
    package = {"EMM_LIBRARY": os.environ.get("EMM_LIBRARY", str(build() / "lib/libemm.so.1")),
               "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "tools/python"), os.environ.get("PYTHONPATH"))))}
    if way == "native":
        return script, {}
    if way == "expandable":
        return script, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    if way.startswith("run:"):
        return ([str(build() / "tools/emm/emm"), "run", "--plugin", way.removeprefix("run:"), "--", *script],
                {**package, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    return [*script, "--allocator", "emm"], {**package, "EMM_PLUGIN": way}


class Run:
    """A program that has been started, and begins when it is told to."""

    def __init__(self, program, way, *more, device=None):
        self.program, self.way = program, way
        words, variables = command(program, way, "--wait", *more)
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(words, env={**os.environ, **variables, **on(device)}, stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=self.errors)

    def result(self, timeout):
        """Its results. If it failed, `error` says how it ended."""
        watch = threading.Timer(timeout, self.process.kill)
        watch.start()
        said, _ = self.process.communicate("\n")
        watch.cancel()
        told = {"program": self.program, "way": self.way}
        lines = [line for line in said.splitlines() if line.startswith("{")]
        if self.process.returncode == 0 and lines:
            return {**told, **json.loads(lines[-1])}
        self.errors.seek(0)
        last = (self.errors.read().strip().splitlines() or ["no word on why"])[-1]
        return {**told, "error": f"ended with status {self.process.returncode}: {last}"}

    def drop(self):
        self.process.kill()
        self.process.communicate()


def turns(programs, ways, times, done):
    """The runs that are left, each way once a turn; the ways begin each turn with another one."""
    counted = {(program, way): sum((one["program"], one["way"]) == (program, way) for one in done)
               for program in programs for way in ways}
    for program in programs:
        for turn in range(times):
            first = turn % len(ways)
            for way in (*ways[first:], *ways[:first]):
                if counted[program, way] <= turn:
                    yield program, way


def measure(plan, arguments, keep, until=float("inf"), timeout=240, device=None):
    """Carries out `plan` one run after another and gives each result to `keep`. False: the time was over."""
    ahead = None
    for program, way in [*plan, (None, None)]:
        begun, ahead = ahead, Run(program, way, *arguments, device=device) if program else None
        if begun:
            keep(begun.result(timeout))
            if ahead and time.monotonic() > until:
                ahead.drop()
                return False
    return True


def summary(runs):
    """By (program, way): medians of what its runs found; with `error` if one has failed."""
    found = {}
    for one in runs:
        found.setdefault((one["program"], one["way"]), []).append(one)
    return {key: summary_of(ones) for key, ones in found.items()}


def summary_of(ones):
    failed = [one["error"] for one in ones if "error" in one]
    if failed:
        return {"runs": len(ones), "error": failed[0]}
    rates = [one["steps_per_second"] for one in ones]
    peaks = {what: max(one[what] for one in ones) if all(one[what] for one in ones) else None
             for what in ("live", "reserved")}
    return {"runs": len(ones), "rate": statistics.median(rates), "slowest": min(rates), "quickest": max(rates), **peaks,
            "ratio": peaks["reserved"] / peaks["live"] if all(peaks.values()) else None}


def table(runs):
    lines = ["| program | way | runs | steps/s: median (least, most) | live GiB | reserved GiB | reserved / live |",
             "|---|---|---|---|---|---|---|"]
    for (program, way), one in summary(runs).items():
        if "error" in one:
            lines.append(f"| {program} | {way} | {one['runs']} | {one['error']} | | | |")
            continue
        live, reserved = (f"{one[what] / GIB:.2f}" if one[what] else "-" for what in ("live", "reserved"))
        ratio = f"{one['ratio']:.3f}" if one["ratio"] else "-"
        lines.append(f"| {program} | {way} | {one['runs']} | {one['rate']:.2f} ({one['slowest']:.2f}, "
                     f"{one['quickest']:.2f}) | {live} | {reserved} | {ratio} |")
    return "\n".join(lines) + "\n"


def trace_of(log, longest=LONGEST):
    """The device memory of an event log as rows of a trace: device 0's, so many events at most, on one thread."""
    live, streams, rows, begun, time_us = {}, {}, ["time,thread,stream,op,id,size"], None, 0
    for row in csv.DictReader(log):
        if row["Event Type"] not in ("Alloc", "Free") or row["Device ID"] != "0":
            continue
        if len(rows) > longest:
            break
        begun = float(row["Start"]) if begun is None else begun
        time_us = max(time_us, round((float(row["Start"]) - begun) * 1e6))
        if row["Event Type"] == "Alloc":
            stream = streams.setdefault(row["Stream"], len(streams))
            live[row["Address"]] = (len(rows), stream, row["Size (bytes)"])
            rows.append(f"{time_us},0,{stream},alloc,{len(rows)},{row['Size (bytes)']}")
        elif row["Address"] in live:
            name, stream, size = live.pop(row["Address"])
            stream = streams.get(row["Stream"], stream)  # a free without a stream: the stream of the allocation
            rows.append(f"{time_us},0,{stream},free,{name},{size}")
    return rows


def record(program, folder, *more, device=None):
    """A round of it as FOLDER/NAME.csv.gz. What went wrong, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{program}-log.csv"
    words, variables = command(program, "pool", "--rounds", "1", *more)
    try:
        done = subprocess.run(words, env={**os.environ, **variables, **on(device), "EMM_EVENT_LOG": str(log)}, text=True, timeout=240,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    except subprocess.TimeoutExpired as late:
        return str(late)
    if done.returncode != 0 or not log.exists():
        return (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}, and left no log"])[-1]
    with open(log, encoding="utf-8", newline="") as file:
        rows = trace_of(file)
    log.unlink()
    (folder / f"{program}.csv.gz").write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode(), mtime=0))
    print(f"{program}: {len(rows) - 1} events; {done.stdout.splitlines()[-1]}", flush=True)
    return ""


def record_all(programs, folder, *more):
    """The failures, by program."""
    found = {program: record(program, folder, *more) for program in programs}
    return {program: wrong for program, wrong in found.items() if wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seconds", default="25")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--small", action="store_true", help="on the CPU, as little as still shows that it works")
    wish = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("skipped: torch is not installed")
        return 77
    programs, ways, runs = wish.only.split(","), tuple(wish.ways.split(",")), []
    if unknown := set(programs) - set(PROGRAMS):
        parser.error(f"--only: no program is called {', '.join(sorted(unknown))}")
    small = ["--small", "--device", "cpu"] if wish.small else []
    if wish.record:
        wrong = record_all(programs, wish.folder / "recordings", *small)
        print("\n".join(f"FAILED: {program}: {why}" for program, why in wrong.items()))
        return 1 if wrong else 0

    def keep(one):
        runs.append(one)
        (wish.folder / "busy.json").write_text(json.dumps(runs, indent=1))

    measure(turns(programs, ways, wish.times, []), ["--seconds", wish.seconds, *small], keep)
    print(table(runs))
    return 1 if any("error" in one for one in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
