"""Runs each case on each allocator, in a process of its own, and gathers the answers."""
import ctypes
import json
import os
import subprocess
import sys

import families
import plot
from families import Missing
from plan import FOOTPRINT, REFERENCE, shared_value


def gpu_name():
    """The first GPU's name; None without one, or if emm was told to use the simulated driver."""
    if os.environ.get("EMM_DRIVER") == "sim":
        return None
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    name, device = ctypes.create_string_buffer(256), ctypes.c_int()
    found = (cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
             and cuda.cuDeviceGetName(name, 256, device) == 0)
    return name.value.decode() if found else None


class Run:
    def __init__(self, options, out):
        self.timeout, self.allocators = options.timeout, options.allocators
        self.gpu = gpu_name()
        self.commands, self.missing = {}, {}
        build = options.build.resolve()
        self.tool, self.meter = build / "tools/emm/emm", None
        for family in {allocator.family: None for allocator in self.allocators}:
            find = families.BUILDERS[family]
            try:
                if family != "emm" and not self.gpu:
                    raise Missing("needs a GPU")
                self.commands[family] = find(build, out)
            except Missing as missing:
                self.missing[family] = {"absent": str(missing), "detail": missing.detail}
        try:
            self.meter = families.metered_driver(build, out, bool(self.gpu))
        except Missing as missing:
            self.missing["meter"] = {"absent": "-", "detail": missing.detail}

    def report(self, cases):
        results = []
        for i, case in enumerate(cases):
            for allocator in self.allocators:
                print(f"{i + 1}/{len(cases)} {case.name}: {allocator.name}", file=sys.stderr)
                results += self.cell(case, allocator)
        add_ratios(results)
        rows = dict.fromkeys((r["case"], r["unit"]) for r in results)
        return {"device": self.gpu or "simulated driver", "reference": REFERENCE,
                "allocators": [a.name for a in self.allocators],
                "cases": [{"case": case, "unit": unit} for case, unit in rows],
                "results": results, "good": not any("error" in r for r in results
                                               if r["allocator"].startswith("emm "))}

    def cell(self, case, allocator):
        """A result for each figure of the case."""
        answer = self.answer(case, allocator)
        return [self.result(case, figure, allocator, answer) for figure in case.figures]

    def answer(self, case, allocator):
        if allocator.family in self.missing:
            return self.missing[allocator.family]
        if case.tool:
            arguments = case.tool(allocator.argument) if allocator.family == "emm" else None
            return (self.ask_tool(arguments, allocator) if arguments
                    else {"absent": "not applicable"})
        if case.metered and "meter" in self.missing:
            return self.missing["meter"]
        return self.ask(allocator, case, allocator.argument)

    def result(self, case, figure, allocator, answer):
        told = {"allocator": allocator.name, "case": case.name, "unit": figure.unit}
        if "absent" in answer or "error" in answer:
            return {**told, **answer}
        if figure.unit == FOOTPRINT:
            return {**told, **self.footprint(case, figure, allocator, answer)}
        told["value"] = figure.value(answer)
        if case.arguments[:1] == ["bench"]:
            told["raw"] = answer
        if figure.beside_interpreter:
            told["interpreter"] = answer.get("interpreter_ns")
        return told

    def footprint(self, case, figure, allocator, answer):
        told = {"value": None, "peak_live_bytes": answer["peak_live_bytes"]}
        if allocator.grows:
            told.update(value=figure.value(answer), course=answer["course"])
        if allocator.has_fixed:
            told["fixed"] = self.smallest_fixed(allocator, case, answer["peak_live_bytes"])
        return told

    def smallest_fixed(self, allocator, case, live):
        """The smallest size that serves, over what is live, to 2 %; None: four times did not."""
        def serves(factor):
            argument = f"{allocator.argument}:{int(live * factor)}"
            return "error" not in self.ask(allocator, case, argument)

        high = next((factor for factor in (1.1, 1.5, 2.0, 4.0) if serves(factor)), None)
        low = {1.1: 1.0, 1.5: 1.1, 2.0: 1.5, 4.0: 2.0}.get(high)
        while high and high - low > 0.02:
            middle = (low + high) / 2
            low, high = (low, middle) if serves(middle) else (middle, high)
        return high

    def ask(self, allocator, case, argument):
        command = [*self.commands[allocator.family], argument, *case.arguments]
        return self.run(command, self.environment(allocator, case.metered), case.events)

    def ask_tool(self, arguments, allocator):
        told = self.run([str(self.tool), *arguments], self.environment(allocator))
        if "results" in told:
            told = told["results"][0]
        return {"error": told["error"]["message"]} if isinstance(told.get("error"), dict) else told

    def environment(self, allocator, metered=False):
        changed = {**os.environ, **allocator.environment}
        for variable in ("EMM_EVENT_LOG", "EMM_DRIVER_METER"):  # would be measured, too
            changed.pop(variable, None)
        if not self.gpu:
            changed.update({"EMM_DRIVER": str(self.meter) if metered else "sim",
                            "EMM_SIM": "memory=256GiB"})
        elif metered:  # it has the driver's name, so programs that open the driver find it
            before = changed.get("LD_PRELOAD")
            changed["LD_PRELOAD"] = f"{self.meter}:{before}" if before else str(self.meter)
        return changed

    def run(self, command, environment, events=""):
        try:
            done = subprocess.run(command, input=events, capture_output=True, text=True,
                                  env=environment, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            return {"error": f"took more than {self.timeout:.0f} s"}
        except OSError as error:
            return {"error": f"did not start: {error}"}
        try:
            return json.loads(done.stdout)
        except ValueError:
            said = done.stderr.strip().splitlines() or ["no word on why"]
            return {"error": f"ended with status {done.returncode}: {said[-1]}"}


def add_ratios(results):
    reference = {(r["case"], r["unit"]): r.get("value") for r in results
                 if r["allocator"] == REFERENCE}
    for result in results:
        if result["unit"].split()[0] not in ("ns", "us", "ms"):  # no cost
            continue
        of = reference.get((result["case"], result["unit"]))
        if of and result.get("value"):
            result["ratio"] = result["value"] / of


def title(report, quick):
    shortness = "; too short a run for its figures to mean anything" if quick else ""
    return (f"{report['device']}; cost beside {report['reference']}'s in the same run in "
            f"parentheses{shortness}\n\n")


# Allocators whose courses differ enough to be told apart.
DRAWN = ("emm pool", "emm pool:growth=segment", "emm pool:growth=vmm", "cuMemAllocAsync", "PyTorch",
         "PyTorch expandable", "RMM pool")
PICTURED = "train_gpt"  # the recording whose course is drawn, if played


def write_plots(report, out):
    for name, drawing in (("threads", threads_plot(report)), ("reserved", reserved_plot(report))):
        if drawing:
            (out / f"{name}.svg").write_text(drawing)


def threads_plot(report):
    series, ticks = {}, set()
    for result in report["results"]:
        threads = {"pair, 256 B": 1}.get(result["case"])
        if result["case"].startswith("pair, ") and result["case"].endswith(" threads"):
            threads = int(result["case"].split()[1])
        if threads and result.get("value"):
            ticks.add(threads)
            ns = shared_value(result["raw"])
            series.setdefault(result["allocator"], []).append((threads, ns))
    return plot.lines(f"A pair of 256 B on {report['device']}", "threads",
                      "ns a pair, all threads together", list(series.items()), sorted(ticks), True)


def reserved_plot(report):
    drawn = [r for r in report["results"] if r.get("course") and r["allocator"] in DRAWN]
    cases = [r["case"] for r in drawn]
    chosen = [r for r in drawn if r["case"] == (PICTURED if PICTURED in cases else cases[-1])]
    if not chosen:
        return None

    def line(result, which):
        step = 100 / len(result["course"])
        return [(i * step, point[which] / (1 << 20)) for i, point in enumerate(result["course"])]

    series = [("live", line(chosen[0], 0))] + [(r["allocator"], line(r, 1)) for r in chosen]
    return plot.lines(f"Memory reserved for the recording {chosen[0]['case']}, {report['device']}",
                      "per cent of the recording's events", "MiB", series)
