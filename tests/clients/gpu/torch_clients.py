#!/usr/bin/env python3
"""PyTorch on its own allocator and on emm, side by side. Needs a GPU.

    torch_clients.py FOLDER [--only train,graph,compiled,infer,checks] [--steps 200] [--requests 24]
                            [--times 1]

Trains the small GPT of tests/traces, by a captured graph and by torch.compile too, and serves it, each allocator in a
process of its own. What is computed must be the same to the bit; speed and peak reserved memory are
printed as a table. Then come torch_checks.py, whose processes end while tensors live.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The first way runs once more at the end, to show differences between runs.
COMPARED = ["native", "pool", "pool:growth=segment", "native"]
CHECKED = [*COMPARED[:-1], "passthrough", "pluggable", "mem_pool"]
MIB = 1 << 20
failed = []


def child(script, *arguments):
    """The program's output. A failure is shown and counted."""
    done = subprocess.run([sys.executable, HERE / script, *map(str, arguments)], text=True,
                          capture_output=True, timeout=900, env=os.environ, check=False)
    noise = "" if done.returncode == 0 else done.stderr[-3000:]
    if done.returncode != 0:
        failed.append(f"{script} {' '.join(map(str, arguments))}")
        print(f"FAILED ({done.returncode}): {failed[-1]}\n{done.stdout[-2000:]}{noise}", flush=True)
    return done.stdout


def measured(program, allocator, count, times):
    """The fastest of `times` runs; the digests of all must agree."""
    runs = [json.loads(output.splitlines()[-1]) for output in
            (child("torch_programs.py", program, allocator, count) for _ in range(times)) if output]
    if not runs:
        return None
    best = max(runs, key=lambda run: run["rate"])
    best["digests"] = {run["digest"] for run in runs}
    return best


def compare(program, count, unit, times):
    native, runs = None, []
    for allocator in COMPARED:
        run = measured(program, allocator, count, times)
        if run is None:
            if native is None:
                return []
            continue
        native = native or run
        runs.append({**run, "digests": sorted(run["digests"])})
        same = run["digests"] == native["digests"]
        if not same:
            failed.append(f"{program} on {allocator} computed something else")
        print(f"| {program} | {allocator} | {'the same' if same else 'DIFFERENT'} {run['digest']} "
              f"| {run['rate']:.1f} {unit} ({run['rate'] / native['rate']:.3f}) "
              f"| {run['reserved'] / MIB:.0f} ({run['reserved'] / native['reserved']:.3f}) "
              f"| {run['live'] / MIB:.0f} |", flush=True)
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="train,graph,compiled,infer,checks")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--times", type=int, default=1)
    args = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("skipped: torch is not installed")
        return 77
    wanted = args.only.split(",")
    print("| program | allocator | computed | speed (to native) | peak reserved MiB (to native) "
          "| peak live MiB |\n|---|---|---|---|---|---|", flush=True)
    runs = []
    for program, count, unit in (("train", args.steps, "steps/s"), ("graph", args.steps, "steps/s"),
                                 ("compiled", args.steps, "steps/s"),
                                 ("infer", args.requests, "tokens/s")):
        runs += compare(program, count, unit, args.times) if program in wanted else []
    (args.folder / "torch.json").write_text(json.dumps(runs, indent=1))
    for allocator in CHECKED if "checks" in wanted else []:
        print(f"\n{allocator}:\n\n{child('torch_checks.py', allocator)}", flush=True)
    print("\n".join(f"failed: {what}" for what in failed) or "PyTorch: all good")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
