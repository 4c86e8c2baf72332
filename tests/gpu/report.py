#!/usr/bin/env python3
"""Prints the tables of a run from the folder that tests/gpu/run has filled.

    tests/gpu/report.py FOLDER [DATA]

DATA: a folder; the tables go there too, as files of comma-separated values with the date, the commit
and the command on top (tests/gpu/data holds those of the newest run).
"""
import csv
import datetime
import json
import pathlib
import statistics
import sys


def load(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        print(f"*{path.name}: {error}*\n")
        return None


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def title(folder):
    """The day of the run, its devices, driver and commit."""
    info = folder / "info.json"
    day = datetime.date.fromtimestamp(info.stat().st_mtime if info.exists() else 0).isoformat()
    driver = (load(info) or {}).get("driver") or {}
    devices = ", ".join(d.get("name", "?") for d in driver.get("devices", []))
    commit = folder / "commit.txt"
    text = commit.read_text().strip() if commit.exists() else ""
    return f"{day}: {devices}, driver {driver.get('version')}, commit {text or 'unknown'}"


REPLAY_COLUMNS = ["trace", "plugin", "events", "failed", "leaked", "early", "reserved / live",
                  "driver calls, 2nd half", "ns an event: mean", "p50", "p99", "p99.9"]


def replay_rows(folder, kind):
    for path in sorted(folder.glob(f"{kind}-*.json")):
        answer = load(path)
        for r in (answer or {}).get("results", []):
            if "events" not in r:
                yield [path.stem[len(kind) + 1:], r.get("plugin"), "did not run"] + [""] * 9
                continue
            ratio = r["peak_reserved_bytes"] / max(1, r["peak_live_bytes"])
            ns = r["ns_per_event"]
            yield [path.stem[len(kind) + 1:], r["plugin"], r["events"], r["failed"], r["leaked"],
                   r["early_handovers"], f"{ratio:.3f}", r["driver_calls_second_half"],
                   *(f"{ns[k]:.0f}" for k in ("mean", "p50", "p99", "p999"))]


GENERATED_COLUMNS = ["trace", "plugin", "reserved / live: mean", "of each seed", "failed", "leaked", "early"]


def generated_rows(folder):
    """The mean of each workload over its seeds, for traces whose names end in -SEED."""
    found = {}
    for path in folder.glob("generated-*-*.json"):
        workload, seed = path.stem[len("generated-"):].rsplit("-", 1)
        for result in (load(path) or {}).get("results", []):
            found.setdefault((workload, result["plugin"]), {})[int(seed)] = result
    rows = []
    for (workload, plugin), of_seed in sorted(found.items()):
        ratios = {seed: r["peak_reserved_bytes"] / max(1, r["peak_live_bytes"]) for seed, r in sorted(of_seed.items())
                  if "events" in r}
        mean = f"{statistics.mean(ratios.values()):.3f}" if len(ratios) == len(of_seed) else "did not run with each seed"
        rows.append([workload, plugin, mean, ", ".join(f"{seed}: {ratio:.3f}" for seed, ratio in ratios.items()),
                     *(sum(r.get(what, 0) for r in of_seed.values()) for what in ("failed", "leaked", "early_handovers"))])
    return rows


BENCH_COLUMNS = ["plugin", "case", "threads", "size", "ns a pair", "million pairs a second",
                 "driver calls a pair"]


def bench_rows(answer):
    return [[r["plugin"], r["case"], r["threads"], r["size"], f"{r['ns_per_pair']:.1f}",
             f"{r['mpairs_per_s']:.3f}", r.get("driver_calls_per_pair", "")] for r in answer["results"] if "ns_per_pair" in r]


BOTH_COLUMNS = ["device", "case", "threads", "size", "ns a pair alone", "ns a pair beside the other", "ratio"]


def both_rows(folder):
    """The results of `emm bench` in one process on each device: alone, and at the same time."""
    rows = []
    for device in (0, 1):
        paths = [folder / f"bench-{way}-{device}.json" for way in ("device", "both")]
        if all(path.exists() for path in paths):
            alone, beside = ({(r["case"], r["threads"], r["size"]): r["ns_per_pair"] for r in (load(path) or {}).get("results", [])
                              if "ns_per_pair" in r} for path in paths)
            rows += [[device, *key, f"{alone[key]:.1f}", f"{beside[key]:.1f}", f"{beside[key] / alone[key]:.3f}"]
                     for key in alone if key in beside]
    return rows


def replays(folder, kind):
    rows = list(replay_rows(folder, kind))
    if rows:
        table(REPLAY_COLUMNS, rows)


def bench(folder, name):
    answer = load(folder / f"{name}.json")
    if answer:
        table(BENCH_COLUMNS, bench_rows(answer))
        for r in answer["results"]:
            if "error" in r:
                print(f"*{r['plugin']}, {r.get('case', 'every case')}: {r['error']['message']}*\n")


def said(folder, title, pattern):
    logs = sorted(folder.glob(pattern))
    if logs:
        print(f"### {title}\n\n```")
        for log in logs:
            print("\n".join(f"{log.stem}: {line}" for line in log.read_text().splitlines()))
        print("```\n")


def cells(line):
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def save(path, folder, command, columns, rows):
    with path.open("w", newline="") as out:
        out.write(f"# {title(folder)}\n# {command}\n")
        csv.writer(out, lineterminator="\n").writerows([columns, *rows])


def save_all(folder, data):
    for kind, command in (("replay", "emm replay TRACE (strict order)"),
                          ("warm", "emm replay TRACE --warm: the second time"),
                          ("touch", "emm replay TRACE --touch")):
        rows = list(replay_rows(folder, kind))
        if rows:
            save(data / f"{kind}.csv", folder, command, REPLAY_COLUMNS, rows)
    rows = generated_rows(folder)
    if rows:
        save(data / "generated-seeds.csv", folder, "emm replay TRACE --plugin pool --plugin pool:slack=0",
             GENERATED_COLUMNS, rows)
    for name in ("bench", "bench-unordered", "bench-threads"):
        answer = load(folder / f"{name}.json")
        if answer:
            save(data / f"{name}.csv", folder, "emm bench, as in tests/gpu/run", BENCH_COLUMNS,
                 bench_rows(answer))
    peers = folder / "peers/peers.md"
    if peers.exists():
        lines = [line for line in peers.read_text().splitlines() if line.startswith("| ")]
        save(data / "peers.csv", folder, "tests/peers/run; in parentheses: the multiple of emm pool's",
             cells(lines[0]), [cells(line) for line in lines[1:]])
        (data / "reserved.svg").write_text((peers.parent / "reserved.svg").read_text())
    goals = folder / "goals/goals.md"
    if goals.exists():
        lines = [line for line in goals.read_text().splitlines() if line.startswith("| ")]
        save(data / "goals.csv", folder, "tests/gpu/run FOLDER goals", cells(lines[0]), [cells(line) for line in lines[1:]])


def main():
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 2:
        save_all(folder, pathlib.Path(sys.argv[2]))
    print(f"## {title(folder)}\n\n`tests/gpu/run`\n")
    log = folder / "tests.log"
    if log.exists():
        print("Tests on the real driver:\n\n```")
        print("\n".join(l for l in log.read_text().splitlines()
                        if l.startswith(("Ok:", "Expected Fail:", "Fail:", "Skipped:", "Timeout:"))))
        print("```\n")
    print("### Recordings, strict order\n")
    replays(folder, "replay")
    print("### The same played a second time (--warm)\n")
    replays(folder, "warm")
    print("### The same with every block written and checked (--touch)\n")
    replays(folder, "touch")
    rows = generated_rows(folder)
    if rows:
        print("### Generated traces\n")
        table(GENERATED_COLUMNS, rows)
    said(folder, "Thrust, CUB and cuda::mr over emm.hpp", "thrust-*.log")
    said(folder, "Event logs, written and read back", "events-*.log")
    print("### Cost of an allocation\n")
    bench(folder, "bench")
    print("### With no stream, on an idle device and beside work that does not end\n")
    bench(folder, "bench-unordered")
    print("### Threads\n")
    bench(folder, "bench-threads")
    both = both_rows(folder)
    if both:
        print("### Two devices, each alone and both at once\n")
        table(BOTH_COLUMNS, both)
    table_of_peers = folder / "peers/peers.md"
    if table_of_peers.exists():
        print(f"### Beside other allocators\n\n{table_of_peers.read_text()}")
    goals = folder / "goals/goals.md"
    if goals.exists():
        print(f"### The goals of the pool\n\n{goals.read_text()}")


if __name__ == "__main__":
    main()
