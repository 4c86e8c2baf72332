#!/usr/bin/env python3
"""check_events.py LOG.csv RECORDED.json REPLAYED.json: an event log of a replay is whole.

Every event starts before it ends, every allocation is freed and every free has its allocation, and
a replay of the log (REPLAYED) has the peak of the replay that wrote it (RECORDED).
"""
import csv
import decimal
import json
import sys


def live_after(log):
    """Address -> row of what is never freed; every row is checked on the way."""
    live, events = {}, 0
    with open(log, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            events += row["Event Type"] in ("Alloc", "Free")
            start, end, elapsed = (decimal.Decimal(row[name]) for name in ("Start", "End", "Elapsed"))
            if start > end or end - start != elapsed:
                sys.exit(f"times do not fit: {row}")
            if row["Event Type"] == "Alloc":
                if live.setdefault(row["Address"], row) is not row:
                    sys.exit(f"allocated twice: {row}")
            elif row["Event Type"] == "Free":
                if live.pop(row["Address"], None) is None:
                    sys.exit(f"freed without an allocation: {row}")
            elif row["Event Type"] != "Retire":
                sys.exit(f"not an event of a replay: {row}")
            if int(row["Current Allocs"]) != len(live):
                sys.exit(f"expected {len(live)} current allocations: {row}")
    return live, events


def only_result(path):
    with open(path, encoding="utf-8") as file:
        (result,) = json.load(file)["results"]
    return result


def main():
    log, recorded, replayed = sys.argv[1], only_result(sys.argv[2]), only_result(sys.argv[3])
    live, events = live_after(log)
    if live:
        sys.exit(f"{len(live)} allocations are never freed, the first: {next(iter(live.values()))}")
    if replayed["failed"] != 0 or replayed["events"] != events:
        sys.exit(f"{events} events, but the replay had {replayed['events']}, failed: {replayed['failed']}")
    peaks = [result["peak_live_bytes"] for result in (recorded, replayed)]
    print(f"{recorded['plugin']}: {events} events, none missing; peak {peaks[0]} bytes, "
          f"replayed {peaks[1]}")
    if peaks[0] != peaks[1]:
        sys.exit("the peaks differ")


if __name__ == "__main__":
    main()
