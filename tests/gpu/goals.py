#!/usr/bin/env python3
"""The pool beside what its goals name: a table that says of each row whether it is reached.

    tests/gpu/goals.py FOLDER [--build BUILD] [--seconds N] [PART...]

Parts, in this order if none is named:

    record     a round of each program in tests/clients/gpu/programs/busy, as FOLDER/recordings/NAME.csv.gz
    replay     the recordings of tests/traces, EMM_TEST_TRACES and FOLDER/recordings, 16 rounds on each allocator
    limits     live sets near the size of a device, and what `emm bench` says of large blocks and of a busy device
    programs   the programs themselves, five times in turns: EMM_GOALS_RUN seconds each (5)

Programs run on all GPUs at the same time, the longest first, all ways of one program on the same GPU; the rest runs on
the first GPU. No run begins after --seconds (EMM_GOALS_SECONDS, 540). Called again with the same FOLDER and the same build,
it goes on where it stopped. FOLDER has goals.json with all that was found, and goals.md with the table, which is printed.
"""
import argparse
import concurrent.futures
import dataclasses
import hashlib
import importlib.util
import json
import os
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
for place in ("tests/peers", "tests/process", "tests/clients/gpu"):
    sys.path.append(str(ROOT / place))
import busy_clients  # noqa: E402
import peers  # noqa: E402
import plan  # noqa: E402
import table  # noqa: E402
import tight_load  # noqa: E402

PARTS = ("record", "replay", "limits", "programs")
POOL, TORCH, EXPANDABLE, RMM, DRIVER = "emm pool", "PyTorch", "PyTorch expandable", "RMM pool", "cuMemAllocAsync"
COLUMNS = (POOL, TORCH, EXPANDABLE, RMM, "RMM async", DRIVER, "emm passthrough")
REPLAYED = COLUMNS[:5]
ROUNDS, TIMES = 16, 5
GIB = 1 << 30
TIGHT_DEVICE, TIGHT_SHARES, TIGHT_SEEDS = 40 * GIB, (85, 90, 95), range(1, 10)
HARD_SEEDS = range(1, 4)
LARGEST_SET, TIGHT = "GiB live, at most", "failed allocations, device of 40 GiB"
HARD_FOOTPRINT, HARD_COST = "reserved / live, hard lifetimes", "ns an event, hard lifetimes"
RATIO, RATE = "reserved / live, as a program", "steps a second"


# The goals. A check of an unknown value is None.

def at_most(value, *bounds):
    return [None if value is None or bound is None else value <= bound for bound in bounds]


def footprint_checks(found):
    expandable = found.get(EXPANDABLE)
    return at_most(found.get(POOL), 1.03, None if expandable is None else expandable + 0.005)


def failure_checks(found):
    """Failures on the driver itself count only if the pool has failures."""
    return at_most(found.get(POOL), found.get("emm passthrough", 0 if found.get(POOL) == 0 else None))


def largest_set_checks(found):
    mine, of_driver = found.get(POOL), found.get(DRIVER)
    return [None if mine is None or of_driver is None else mine >= 0.995 * of_driver]


def rate_checks(found):
    mine, others = found.get(POOL), [found.get(name) for name in (TORCH, EXPANDABLE)]
    return [None if mine is None or other is None else mine >= 0.99 * other for other in others]


GOALS = {  # unit: the goal, and the checks of the results, by allocator
    plan.FAILURES: ("no more than passthrough within the same bound", failure_checks),
    TIGHT: ("no more than passthrough", failure_checks),
    LARGEST_SET: ("within 0.5 % of cuMemAllocAsync", largest_set_checks),
    plan.FOOTPRINT: ("at most 1.03, and expandable + 0.005", footprint_checks),
    plan.ROUNDS_FOOTPRINT: ("at most 1.03, and expandable + 0.005", footprint_checks),
    RATIO: ("at most 1.05", lambda found: at_most(found.get(POOL), 1.05)),
    RATE: ("at least 0.99 of the quicker of the two", rate_checks),
    plan.SECOND_PASS_CALLS: ("at most 4", lambda found: at_most(found.get(POOL), 4)),
    "ns an event": ("at most the quickest of PyTorch, expandable, RMM pool",
                    lambda found: at_most(found.get(POOL), *(found.get(name) for name in (TORCH, EXPANDABLE, RMM)))),
    "ns an event, p99.9": ("at most 5,000", lambda found: at_most(found.get(POOL), 5000)),
    "ms in the driver, first pass": ("at most expandable", lambda found: at_most(found.get(POOL), found.get(EXPANDABLE))),
    HARD_FOOTPRINT: ("at most 1.10", lambda found: at_most(found.get(POOL), 1.10)),
    HARD_COST: ("at most 1,000", lambda found: at_most(found.get(POOL), 1000)),
    "ns a pair, beside work that does not end": ("at most 300", lambda found: at_most(found.get(POOL), 300)),
    "ns a pair, large": ("at most 350", lambda found: at_most(found.get(POOL), 350)),
}


def verdict(checks):
    if False in checks:
        return "missed"
    return "not known" if None in checks else "reached"


def judged(results):
    """A row for each unit and case: (unit, case, values by allocator, verdict)."""
    rows = {}
    for one in results:
        if one["unit"] in GOALS:
            cells = rows.setdefault((one["unit"], one["case"]), {})
            before = cells.get(one["allocator"], {})
            if one["unit"] == TIGHT and "value" in one and "value" in before:  # of all seeds together
                one = {**one, "value": one["value"] + before["value"]}
            cells[one["allocator"]] = one if "error" not in before else before
    order = list(GOALS)
    return [(*key, {name: text(one) for name, one in rows[key].items()}, row_verdict(key[0], rows[key]))
            for key in sorted(rows, key=lambda key: order.index(key[0]))]


def row_verdict(unit, cells):
    if "error" in cells.get(POOL, {}):
        return "missed"
    values = {name: one["value"] for name, one in cells.items() if one.get("value") is not None}
    return verdict(GOALS[unit][1](values))


def text(one):
    if one.get("value") is None or "reserved" not in one["unit"] and one["unit"] != LARGEST_SET:
        return table.cell({**one, "ratio": None})
    return f"{one['value']:.3f}"


def markdown(results):
    rows = judged(results)
    counts = {word: sum(row[3] == word for row in rows) for word in ("reached", "missed", "not known")}
    lines = [", ".join(f"{count} {word}" for word, count in counts.items()), "",
             "| what | of | goal | " + " | ".join(COLUMNS) + " | |", "|---" * (len(COLUMNS) + 4) + "|"]
    for unit, case, texts, word in rows:
        lines.append(f"| {unit} | {case} | {GOALS[unit][0]} | "
                     + " | ".join(texts.get(name, "") for name in COLUMNS)
                     + f" | {'**missed**' if word == 'missed' else word} |")
    return "\n".join([*lines, "", *table.notes(results)]) + "\n"


class Kept:
    """The results, in a file that is written after each run. A file of another build is dropped, and what failed or was
    not there is tried again."""

    def __init__(self, path, build):
        self.path, self.told = path, {"build": build, "cells": {}, "runs": []}
        if path.exists() and (before := json.loads(path.read_text()))["build"] == build:
            self.told["cells"] = {key: results for key, results in before["cells"].items()
                                  if not any("error" in one or "absent" in one for one in results)}
            self.told["runs"] = [one for one in before["runs"] if "error" not in one]

    def save(self):
        self.path.write_text(json.dumps(self.told, indent=1))

    def results(self):
        cells = [one for results in self.told["cells"].values() for one in results]
        return cells + program_results(self.told["runs"])


def program_results(runs):
    """The programs' summaries as results of the table."""
    names = {"pool": POOL, "native": TORCH, "expandable": EXPANDABLE}
    results = []
    for (program, way), one in busy_clients.summary(runs).items():
        for unit, value in ((RATIO, one.get("ratio")), (RATE, one.get("rate"))):
            told = {"allocator": names.get(way, way), "case": program, "unit": unit}
            results.append({**told, "error": one["error"]} if "error" in one else
                           {**told, "value": value} if value is not None else {**told, "absent": "-"})
    return results


def build_id(build):
    """A digest of all files that are measured."""
    digest = hashlib.sha256()
    for name in ("lib/libemm.so.1", "plugins/pool/libemm-pool.so", "tools/emm/emm", "tests/peers/peer-emm"):
        digest.update((build / name).read_bytes())
    return digest.hexdigest()[:16]


class Goals:
    def __init__(self, wish):
        self.wish, self.until = wish, time.monotonic() + wish.seconds
        self.out = wish.folder.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.kept = Kept(self.out / "goals.json", build_id(wish.build))
        self.allocators = {one.name: dataclasses.replace(one, has_fixed=False) for one in plan.ALLOCATORS
                           if one.name in COLUMNS}
        self.peers = None  # whose programs are compiled when the first is run

    def is_over(self):
        return time.monotonic() > self.until

    def cell(self, case, allocator, label):
        """Runs a case on an allocator, unless that was done. False: the time is over."""
        key = f"{label}: {case.name}: {allocator.name}"
        if key not in self.kept.told["cells"]:
            if self.is_over():
                return False
            if self.peers is None:
                self.peers = peers.Run(argparse.Namespace(timeout=self.wish.timeout, build=self.wish.build,
                                                          allocators=list(self.allocators.values())), self.out)
            print(f"{key}", file=sys.stderr, flush=True)
            self.kept.told["cells"][key] = self.peers.cell(case, allocator)
            self.kept.save()
        return True

    def pool_fails(self, case, label):
        found = self.kept.told["cells"].get(f"{label}: {case.name}: {POOL}", [{}])[0]
        return found.get("value", 0) > 0

    def limited(self, trace, name, unit, label, limit):
        """Replays on the pool; where that fails any, on passthrough within the same bound. False: the time is over."""
        specs = {"pool": f"pool:max={limit}"}
        case = plan.Case(name, [plan.Figure(unit, lambda answer: answer["failed"])], [],
                         tool=lambda spec: ["replay", str(trace), "--plugin", specs.get(spec, spec), "--json"])
        passthrough = self.allocators["emm passthrough"]
        bound = dataclasses.replace(passthrough, environment={**passthrough.environment, "EMM_LIMIT": str(limit)})
        return self.cell(case, self.allocators[POOL], label) and (not self.pool_fails(case, label)
                                                                  or self.cell(case, bound, label))

    def traces(self):
        folders = [ROOT / "tests/traces", self.out / "recordings"]
        if os.environ.get("EMM_TEST_TRACES"):
            folders.append(pathlib.Path(os.environ["EMM_TEST_TRACES"]))
        named = {plan.name_of(trace): trace for folder in folders for trace in plan.traces_in(folder)}
        return sorted(named.items())

    def on_all_devices(self, use):
        """Each GPU uses one program after another, as long as any is left. Whether each use was whole."""
        gpus = [] if self.wish.small else busy_clients.devices()
        gpus = gpus or [None]
        left = iter(busy_clients.PROGRAMS)
        with concurrent.futures.ThreadPoolExecutor(len(gpus)) as threads:
            return all(list(threads.map(lambda gpu: all([use(gpu, program) for program in left]), gpus)))

    def record(self):
        recordings = {name for name, _ in self.traces()}

        def record_on(device, program):
            if program in recordings:
                return True
            if self.is_over():
                return False
            if wrong := busy_clients.record(program, self.out / "recordings", *self.small(), device=device):
                print(f"{program} was not recorded: {wrong}", flush=True)
            return True
        return self.on_all_devices(record_on)

    def replay(self):
        for name, trace in self.traces():
            replay, meter, _ = plan.recording_cases(name, trace, ROUNDS)
            for case in (replay, meter):
                if not all(self.cell(case, self.allocators[each], case.arguments[0]) for each in REPLAYED):
                    return False
            limit = plan.limit_of(plan.peak_live(replay.events))
            if not self.limited(trace, name, plan.FAILURES, "limit", limit):
                return False
        return True

    def limits(self):
        live = plan.Case("largest live set", [plan.Figure(LARGEST_SET, lambda answer: answer["live_bytes"] / GIB)],
                         ["fill", "1"])
        if not all(self.cell(live, self.allocators[each], "fill") for each in (*REPLAYED, DRIVER)):
            return False
        if not all(self.cell(case, self.allocators[POOL], "bench") for case in bench_cases()):
            return False
        for seed in HARD_SEEDS:
            case = plan.Case(f"seed {seed}", [
                plan.Figure(HARD_FOOTPRINT, lambda answer: answer["peak_reserved_bytes"] / answer["peak_live_bytes"]),
                plan.Figure(HARD_COST, lambda answer: answer["ns_per_event"])],
                ["replay", "2"], plan.events_of(self.write_trace(tight_load.lifetimes(seed))))
            if not all(self.cell(case, self.allocators[each], "lifetimes") for each in REPLAYED):
                return False
        for seed, share, threads in ((seed, share, threads) for seed in self.wish.tight_seeds for share in TIGHT_SHARES
                                     for threads in (1, 4)):
            trace = self.write_trace(tight_load.queries(seed, TIGHT_DEVICE * share // 100, threads).rows)
            if not self.limited(trace, f"{share} % live, threads {threads}", TIGHT, f"seed {seed}", TIGHT_DEVICE):
                return False
        return True

    def write_trace(self, rows):
        """A file for the next call alone."""
        trace = self.out / "trace.csv"
        trace.write_text("time,thread,stream,op,id,size\n"
                         + "".join(f"{time_us},{row}\n" for time_us, row in enumerate(rows)))
        return trace

    def programs(self):
        if importlib.util.find_spec("torch") is None:
            print("programs: skipped, torch is not installed")
            return True
        runs, lock = self.kept.told["runs"], threading.Lock()

        def keep(one):
            print(f"{one['program']}, {one['way']}: {one.get('error') or one['steps_per_second']}", file=sys.stderr,
                  flush=True)
            with lock:
                runs.append(one)
                self.kept.save()

        def measure_on(device, program):
            plan_of_runs = list(busy_clients.turns([program], busy_clients.WAYS, TIMES, list(runs)))
            if plan_of_runs and self.is_over():
                return False
            return busy_clients.measure(plan_of_runs, ["--seconds", os.environ.get("EMM_GOALS_RUN", "5"), *self.small()],
                                        keep, self.until, device=device)
        return self.on_all_devices(measure_on)

    def small(self):
        return ["--small", "--device", "cpu"] if self.wish.small else []


def bench_cases():
    def bench(case, unit, size):
        sizes = ["--size", str(size)] if size else []
        return plan.Case(f"{case}{f', {plan.size_text(size)}' if size else ''}",
                         [plan.Figure(unit, lambda answer: answer["ns_per_pair"])], [],
                         tool=lambda spec: ["bench", "--plugin", spec, "--case", case, *sizes, "--json"])
    return [*(bench("pair_busy", "ns a pair, beside work that does not end", size)
              for size in (64 << 10, 1 << 20, 32 << 20)), bench("large", "ns a pair, large", 0)]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-gpu")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("EMM_GOALS_SECONDS", 540)))
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a cell may take")
    parser.add_argument("--tight-seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=TIGHT_SEEDS)
    parser.add_argument("--small", action="store_true", help="programs run on the CPU, as little as shows that they work")
    wish = parser.parse_intermixed_args()
    if unknown := set(wish.parts) - set(PARTS):
        parser.error(f"expected parts out of {', '.join(PARTS)}, found {', '.join(sorted(unknown))}")
    wish.build = wish.build.resolve()
    os.environ["EMM_BUILD"] = str(wish.build)
    return wish


def main():
    wish = options()
    goals, left = Goals(wish), []
    for part in PARTS:
        if part in (wish.parts or PARTS) and not getattr(goals, part)():
            left.append(part)
    goals.kept.save()
    text = markdown(goals.kept.results())
    if left:
        text += f"\nThe time was over: {', '.join(left)} not whole. The same command goes on there.\n"
    (goals.out / "goals.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
