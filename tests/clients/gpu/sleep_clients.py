#!/usr/bin/env python3
"""PyTorch's tensors that sleep: in a named pool of emm's, and in torch_memory_saver. Needs a GPU.

    sleep_clients.py FOLDER [--gib 20] [--cycles 5] [--only WAY,...] [--list]

Each way is a process of its own that holds so many GiB of tensors. One is awake at a time; the others sleep. In turns
each wakes, its tensors are compared with what was written (without a copy they are written anew), and it sleeps again.
Prints seconds and GB/s of the first pause and of the others (median, and the slowest), the bus beside them, and what
share of its memory the device got back. A way whose package is missing, or whose copy the host has no memory for, is
skipped by name. Speed decides nothing; ends with 1 if bytes of emm's differ, or less than 97 % came back.
"""
import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from asked_process import AskedProcess, Ended

GIB = 1 << 30
PART = GIB // 4
SHARE = 0.97
SPARE = 8 * GIB  # of the host's memory, for the processes themselves


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    package: str
    keeps: bool  # the bytes
    holds_copy: bool  # its memory stays while it is awake


WAYS = {way.name: way for way in (
    Way("emm-keep", "emm", True, True),
    Way("saver-backup-retained", "torch_memory_saver", True, True),
    Way("emm-keep-anew", "emm", True, False),
    Way("saver-backup", "torch_memory_saver", True, False),
    Way("emm-discard", "emm", False, False),
    Way("saver", "torch_memory_saver", False, False))}


class Emm:
    def __init__(self, way):
        import emm.torch
        import torch
        self.emm, self.way = emm, way
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # makes the device's context before the pool in it
        self.pool = emm.torch.mem_pool("weights")

    def region(self):
        import torch
        return torch.cuda.use_mem_pool(self.pool)

    def pause(self):
        self.emm.pause("weights", discard=not self.way.keeps)

    def resume(self):
        self.emm.resume("weights", keep_copy=self.way.holds_copy)


class Saver:
    def __init__(self, way):
        from torch_memory_saver import torch_memory_saver
        torch_memory_saver.hook_mode = "torch"
        self.saver, self.way = torch_memory_saver, way

    def region(self):
        self.saver.retain_cpu_backup = self.way.holds_copy
        return self.saver.region(tag="weights", enable_cpu_backup=self.way.keeps)

    def pause(self):
        self.saver.pause("weights")

    def resume(self):
        self.saver.resume("weights")


# --- the process that has the tensors. It does what each line of its input names, and answers in one.


class Sleeper:
    def __init__(self, way, size):
        import torch
        self.torch, self.way, self.size = torch, way, size
        self.allocator = (Emm if way.package == "emm" else Saver)(way)
        with self.allocator.region():
            self.tensors = [torch.empty(PART // 4, dtype=torch.int32, device="cuda") for _ in range(size // PART)]
        self.write()

    def content(self, number):
        random = self.torch.Generator("cuda").manual_seed(number)
        return self.torch.randint(-2 ** 31, 2 ** 31 - 1, (PART // 4,), dtype=self.torch.int32, device="cuda",
                                  generator=random)

    def write(self):
        for number, tensor in enumerate(self.tensors):
            tensor.copy_(self.content(number))
        self.return_unused()

    def return_unused(self):
        """Frees unused memory, so that each measurement begins with only the tensors."""
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()

    def timed(self, function):
        self.return_unused()
        before, begin = self.torch.cuda.mem_get_info()[0], time.perf_counter()
        function()
        self.torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "returned": self.torch.cuda.mem_get_info()[0] - before}

    def pause(self):
        return self.timed(self.allocator.pause)

    def resume(self):
        return self.timed(self.allocator.resume)

    def check(self):
        if not self.way.keeps:
            self.write()
        return {"good": all(self.torch.equal(tensor, self.content(number)) for number, tensor in enumerate(self.tensors))}

    def bus(self):
        """GB/s of pinned memory, to the host and to the device: the best of five."""
        host = self.torch.empty(PART, dtype=self.torch.uint8, pin_memory=True)
        device = self.torch.empty(PART, dtype=self.torch.uint8, device="cuda")
        best = {"to_host": 0.0, "to_device": 0.0}
        for _ in range(5):
            for name, to, source in (("to_host", host, device), ("to_device", device, host)):
                self.torch.cuda.synchronize()
                begin = time.perf_counter()
                to.copy_(source, non_blocking=True)
                self.torch.cuda.synchronize()
                best[name] = max(best[name], PART / 1e9 / (time.perf_counter() - begin))
        return best


def child(way, size):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of packages is no answer
    sleeper = Sleeper(way, size)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(getattr(sleeper, line.strip())()), file=answers, flush=True)


# --- the process that asks them in turn


class Asked(AskedProcess):
    """A way's process, from outside."""

    def __init__(self, way, size, folder):
        super().__init__([sys.executable, "-B", __file__, str(folder), "--child", way.name, str(size)],
                         folder / f"sleep-{way.name}.log", {**os.environ, "EMM_PLUGIN": "pool"})
        self.way, self.found = way, {"pause": [], "resume": [], "good": True}
        self.answer()

    def pause(self):
        self.found["pause"].append(self.ask("pause"))

    def wake(self):
        self.found["resume"].append(self.ask("resume"))
        self.found["good"] &= self.ask("check")["good"]


def host_bytes():
    """The memory that the host has free, according to the kernel and the control group."""
    with open("/proc/meminfo", encoding="ascii") as file:
        found = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    try:
        limit, used = (pathlib.Path("/sys/fs/cgroup", name).read_text().strip() for name in ("memory.max", "memory.current"))
        return found if limit == "max" else min(found, int(limit) - int(used))
    except OSError:
        return found


def wanted_ways(names, size):
    """The ways that this machine can run. The others are skipped by name."""
    left = host_bytes() - SPARE
    for name in names:
        way = WAYS[name]
        if importlib.util.find_spec(way.package) is None:
            print(f"skipped: {name}: {way.package} is not installed")
        elif way.keeps and left < size:
            print(f"skipped: {name}: the host has no {size / GIB:.0f} GiB more for its copy")
        else:
            left -= size if way.keeps else 0
            yield way


def turns(ways, size, cycles, folder):
    """By way what was found, or why it ended."""
    asked, found, bus = {}, {}, {}

    def tried(way, *steps):
        try:
            for step in steps:
                step()
        except (Ended, BrokenPipeError) as end:
            found[way.name] = str(end)
            asked.pop(way, None)

    def start(way):
        asked[way] = Asked(way, size, folder)
        bus.update(bus or asked[way].ask("bus"))
        asked[way].pause()

    for way in ways:
        tried(way, lambda way=way: start(way))
    for turn in range(cycles):
        order = list(asked)
        for way in order[turn % max(1, len(order)):] + order[:turn % max(1, len(order))]:
            one = asked[way]
            tried(way, one.wake, *([one.pause] if turn + 1 < cycles else [one.end]))
        print(f"turn {turn + 1} of {cycles} is done", file=sys.stderr, flush=True)
        if turn + 1 == cycles:
            found.update({way.name: one.found for way, one in asked.items()})
    return found, bus


def figures(runs, size, bus):
    """Seconds and GB/s of the first, then the median and the slowest of the others."""
    def told(seconds):
        rate = size / 1e9 / seconds
        return f"{seconds:.3f} s, {rate:.1f} GB/s" + (f", {100 * rate / bus:.0f} %" if bus else "")
    times = [run["seconds"] for run in runs]
    later = times[1:]
    return [told(times[0]), told(statistics.median(later)) if later else "-", f"{max(later):.3f} s" if later else "-"]


def print_table(ways, found, size, bus):
    print(f"The bus: {bus.get('to_host', 0):.1f} GB/s to the host, {bus.get('to_device', 0):.1f} GB/s to the device.\n")
    print("| way | bytes | given back | first pause | other pauses: median | slowest "
          "| first resume | other resumes: median | slowest |\n|" + "---|" * 9)
    good = True
    for way in ways:
        one = found[way.name]
        if isinstance(one, str):
            print(f"| {way.name} | {one} |" + " |" * 7)
            good &= way.package != "emm"
            continue
        least = min(run["returned"] for run in one["pause"]) / size
        good &= way.package != "emm" or one["good"] and least >= SHARE
        cells = [figures(one[kind], size, bus.get(direction) if way.keeps else None)
                 for kind, direction in (("pause", "to_host"), ("resume", "to_device"))]
        words = ("equal" if way.keeps else "written anew") if one["good"] else "DIFFERENT"
        print(f"| {way.name} | {words} | {100 * least:.1f} % | " + " | ".join(cells[0] + cells[1]) + " |")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gib", type=int, default=20)
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--only", help="ways, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the names of the ways")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    wish = parser.parse_args()
    if wish.child:
        return child(WAYS[wish.child[0]], int(wish.child[1]))
    names = wish.only.split(",") if wish.only else list(WAYS)
    if unknown := set(names) - set(WAYS):
        parser.error(f"--only: no way is called {', '.join(sorted(unknown))}")
    if wish.list:
        print(*names, sep="\n")
        return 0
    if importlib.util.find_spec("torch") is None:
        print("skipped: torch is not installed")
        return 77
    wish.folder.mkdir(parents=True, exist_ok=True)
    ways = list(wanted_ways(names, wish.gib * GIB))
    if not ways:
        return 77
    found, bus = turns(ways, wish.gib * GIB, wish.cycles, wish.folder.resolve())
    (wish.folder / "sleep.json").write_text(json.dumps({"gib": wish.gib, "bus": bus, "ways": found}, indent=1))
    return 0 if print_table(ways, found, wish.gib * GIB, bus) else 1


if __name__ == "__main__":
    sys.exit(main())
