"""Turns the memory history of a PyTorch snapshot into an allocation trace.

A snapshot holds, for each device, a list of events in the order in which the allocator saw them:
{"action", "addr", "size", "stream", "time_us", "frames", ...}. What becomes of them:

    alloc            alloc: the size is the one that was asked for, before any rounding
    free_requested   free: the moment at which the program let go. When the allocator considers
                     the memory reusable (free_completed) is its own affair, as it is a plugin's
    snapshot         mark: every call of _snapshot() leaves one, exactly where it was made
    anything else    left out: segments are what PyTorch's allocator asks of CUDA, not what the
                     program asks of its allocator

Streams are numbered by first appearance. Events with a Python frame come from the program's thread, 0;
those without one from autograd's, 1. Addresses come back, so each allocation gets a number of its own.
"""
import gzip
import io

HEADER = "time,thread,stream,op,id,size"


class TraceError(Exception):
    """The snapshot cannot be turned into a trace; the text says why."""


def events_of(snapshot):
    """The events of the one device that has any."""
    used = [events for events in snapshot["device_traces"] if events]
    if len(used) != 1:
        raise TraceError(f"expected events on one device, found them on {len(used)}")
    return used[0]


def convert(snapshot, marks=(), max_entries=None):
    """The rows of the trace. `marks` are the step numbers, one for each snapshot taken on the way."""
    events = events_of(snapshot)
    if max_entries is not None and len(events) >= max_entries:
        raise TraceError(f"the history is full at {max_entries} entries: its beginning is lost")
    with_frames = any(event.get("frames") for event in events)
    marks = list(marks)
    streams, live, rows = {}, {}, []
    begun = clock = next_id = 0
    for event in events:
        action = event["action"]
        if action not in ("alloc", "free_requested", "snapshot"):
            continue
        begun = begun or event["time_us"]
        clock = max(clock, event["time_us"] - begun)
        if action == "snapshot":
            if marks:
                rows.append((clock, 0, 0, "mark", marks.pop(0), 0))
            continue
        stream = streams.setdefault(event["stream"], len(streams))
        thread = 0 if not with_frames or event.get("frames") else 1
        if action == "alloc":
            if event["addr"] in live:
                raise TraceError(f"address {event['addr']:#x} is given out twice")
            live[event["addr"]] = (next_id, event["size"])
            rows.append((clock, thread, stream, "alloc", next_id, event["size"]))
            next_id += 1
        else:
            if event["addr"] not in live:
                raise TraceError(f"address {event['addr']:#x} is freed and was never given out")
            number, size = live.pop(event["addr"])
            rows.append((clock, thread, stream, "free", number, size))
    if marks:
        raise TraceError(f"the history lacks the marks of steps {marks}")
    return rows


def compress(rows):
    """The trace as gzip; the same rows give the same bytes."""
    text = "\n".join([HEADER] + [",".join(map(str, row)) for row in rows]) + "\n"
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as out:
        out.write(text.encode("ascii"))
    return packed.getvalue()


def fit(rows, limit):
    """As many whole steps as fit into `limit` bytes: (rows, packed, last step kept or None for all)."""
    packed, dropped = compress(rows), False
    while len(packed) > limit:
        starts = [i for i, row in enumerate(rows) if row[3] == "mark"]
        if len(starts) < 2:
            raise TraceError(f"not even one step fits into {limit} bytes")
        rows, dropped = rows[:starts[-1]], True
        packed = compress(rows)
    steps = [row[4] for row in rows if row[3] == "mark"]
    return rows, packed, (steps[-1] if dropped else None)


def describe(rows):
    """The main figures of a trace, as name and number."""
    live = peak = 0
    counts = {"alloc": 0, "free": 0, "mark": 0}
    for _, _, _, op, _, size in rows:
        counts[op] += 1
        live += {"alloc": size, "free": -size, "mark": 0}[op]
        peak = max(peak, live)
    own = [row for row in rows if row[3] != "mark"]
    return {
        "rows": len(rows),
        "allocations": counts["alloc"],
        "frees": counts["free"],
        "alive at the end": counts["alloc"] - counts["free"],
        "marks": counts["mark"],
        "threads": len({row[1] for row in own}),
        "streams": len({row[2] for row in own}),
        "sizes": len({row[5] for row in own}),
        "peak live bytes": peak,
        "seconds": round((rows[-1][0] if rows else 0) / 1e6, 1),
    }
