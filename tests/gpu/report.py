#!/usr/bin/env python3
"""Prints the tables of RESULTS.md from the folder that tests/gpu/run has filled."""
import datetime
import json
import pathlib
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


def head(folder):
    info = load(folder / "info.json") or {}
    driver = info.get("driver") or {}
    devices = ", ".join(d.get("name", "?") for d in driver.get("devices", []))
    commit = folder / "commit.txt"
    text = commit.read_text().strip() if commit.exists() else ""
    print(f"## {datetime.date.today().isoformat()}: {devices}, driver {driver.get('version')}, "
          f"commit {text or 'unknown'}\n")
    print("`tests/gpu/run`\n")


def replays(folder, kind):
    rows = []
    for path in sorted(folder.glob(f"{kind}-*.json")):
        answer = load(path)
        for r in (answer or {}).get("results", []):
            if "events" not in r:
                rows.append([path.stem[len(kind) + 1:], r.get("plugin"), "did not run"] + [""] * 7)
                continue
            ratio = r["peak_reserved_bytes"] / max(1, r["peak_live_bytes"])
            ns = r["ns_per_event"]
            rows.append([path.stem[len(kind) + 1:], r["plugin"], r["events"], r["failed"],
                         r["leaked"], r["early_handovers"], f"{ratio:.3f}",
                         r["driver_calls_second_half"],
                         " / ".join(f"{ns[k]:.0f}" for k in ("mean", "p50", "p99", "p999"))])
    if rows:
        table(["trace", "plugin", "events", "failed", "leaked", "early", "reserved / live",
               "driver calls, 2nd half", "ns an event: mean / p50 / p99 / p99.9"], rows)


def bench(folder, name):
    answer = load(folder / f"{name}.json")
    if answer:
        table(["plugin", "case", "threads", "size", "ns a pair", "million pairs a second"],
              [[r["plugin"], r["case"], r["threads"], r["size"], f"{r['ns_per_pair']:.1f}",
                f"{r['mpairs_per_s']:.3f}"] for r in answer["results"] if "ns_per_pair" in r])
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


def main():
    folder = pathlib.Path(sys.argv[1])
    head(folder)
    log = folder / "tests.log"
    if log.exists():
        print("Tests on the real driver:\n\n```")
        print("\n".join(l for l in log.read_text().splitlines()
                        if l.startswith(("Ok:", "Expected Fail:", "Fail:", "Skipped:", "Timeout:"))))
        print("```\n")
    print("### Recordings, strict order\n")
    replays(folder, "replay")
    print("### The same with every block written and checked (--touch)\n")
    replays(folder, "touch")
    said(folder, "Thrust, CUB and cuda::mr over emm.hpp", "thrust-*.log")
    said(folder, "Event logs, written and read back", "events-*.log")
    print("### Cost of an allocation\n")
    bench(folder, "bench")
    print("### Threads\n")
    bench(folder, "bench-threads")
    table_of_peers = folder / "peers/peers.md"
    if table_of_peers.exists():
        print(f"### Beside other allocators\n\n{table_of_peers.read_text()}")


if __name__ == "__main__":
    main()
