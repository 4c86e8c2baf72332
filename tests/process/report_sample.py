"""Event logs and traces for the tests of `emm report`, and what is in them, counted here anew."""
import csv
import gzip
import random

LOG_HEADER = ("Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,"
              "Current Allocs,Start,End,Elapsed,Location\n")
HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "a,b;c", "\x1b[31mred\x1b[0m\x07",
           'say "hello"', "<!-- & --> \u2028", "\u202eturned", "x" * 20000]


def row(event, address, size, time, caller, stream="0", device=0):
    quoted = '"' + caller.replace('"', '""') + '"'
    return (f"{event},{device},{address:#x},{stream},{size},600,1000,1,{time:.9f},{time:.9f},"
            f"0.000000000,{quoted}\n")


def random_log(events, callers, seed=1):
    """A log of one device; blocks lie where a simple allocator of fixed slots puts them."""
    chance, live, slots, text = random.Random(seed), {}, list(range(4096)), [LOG_HEADER]
    for number in range(events):
        time = number * 1e-4 + (2 if number > events / 2 else 0)
        if len(live) > 1000 or (live and chance.random() < 0.45):
            slot = chance.choice(list(live))
            size, caller = live.pop(slot)
            slots.append(slot)
            text.append(row("Free", (slot + 16) << 16, size, time, caller))
        else:
            slot = slots.pop(chance.randrange(len(slots)))
            live[slot] = chance.choice([256, 4096, 65536, chance.randrange(1, 65536)]), chance.choice(callers)
            text.append(row("Alloc", (slot + 16) << 16, live[slot][0], time, live[slot][1]))
    return "".join(text)


# The expected figures of `dropping_log`.
DROPPING = {"allocations": 20, "frees": 2, "dropped_by_reset": 9, "dropped_with_context": 8, "left_blocks": 1}


def dropping_log():
    """Ten blocks: one is freed, and a reset takes nine. Nine more: one is freed, and the end of their context takes eight."""
    blocks = [0x1000 * i for i in range(1, 11)]
    return LOG_HEADER + "".join(
        [*(row("Alloc", address, 100, address / 1e6, "a") for address in blocks), row("Free", blocks[0], 100, 1, "a"),
         row("Reset", 0, 0, 2, "a"), *(row("Alloc", address, 100, 3 + address / 1e6, "a") for address in blocks[:9]),
         row("Free", blocks[0], 100, 4, "a"), row("Retire", 0, 0, 5, "a"), row("Alloc", 0x1000, 100, 6, "a")])


def events_of(path):
    """(is_free, key, size, nanoseconds, caller) of a log or trace with device memory alone."""
    opened = gzip.open(path, "rt", encoding="utf-8") if str(path).endswith(".gz") else open(path, encoding="utf-8")
    with opened as file:
        for line in csv.DictReader(file):
            if "op" in line:
                if line["op"] in ("alloc", "free"):
                    yield line["op"] == "free", line["id"], int(line["size"]), int(line["time"]) * 1000, ""
            elif line["Event Type"] in ("Alloc", "Free"):
                seconds, part = line["End"].split(".")
                yield (line["Event Type"] == "Free", line["Address"], int(line["Size (bytes)"]),
                       int(seconds) * 10**9 + int(part), line["Location"])


def counted(path):
    """The figures of a recording, and what was live at its peak: [(size, caller)]."""
    live, now, peak, peak_blocks, lifetimes = {}, 0, {"peak_live_bytes": 0}, [], []
    allocations = frees = 0
    for number, (is_free, key, size, time, caller) in enumerate(events_of(path)):
        if is_free:
            now -= size
            frees += 1
            lifetimes.append(time - live.pop(key)[2])
        else:
            now += size
            allocations += 1
            live[key] = size, caller, time
        if now > peak["peak_live_bytes"]:
            peak = {"peak_live_bytes": now, "peak_live_blocks": len(live), "peak_event": number, "peak_time_ns": time}
            peak_blocks = list(live.values())
    return ({"allocations": allocations, "frees": frees, **peak,
             "left_bytes": sum(size for size, *_ in live.values()), "left_blocks": len(live)},
            [(size, caller) for size, caller, _ in peak_blocks], lifetimes)
