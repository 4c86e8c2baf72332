"""The plan of the measurements: allocators and cases."""
import dataclasses
import gzip
from operator import itemgetter


@dataclasses.dataclass(frozen=True)
class Allocator:
    name: str
    family: str
    argument: str
    environment: dict = dataclasses.field(default_factory=dict)
    grows: bool = True
    # The user can give it a fixed size. The smallest size that serves a recording is searched.
    has_fixed: bool = False


def emm(spec):
    return Allocator(f"emm {spec}", "emm", spec, {"EMM_PLUGIN": spec})


REFERENCE = "emm pool"
FOOTPRINT = "reserved / live"  # a unit, like the next ones
ROUNDS_FOOTPRINT = "reserved / live, all rounds"
SECOND_PASS_CALLS = "driver calls, second pass"
FAILURES = "failed allocations, max = 1.02 x live"
ALLOCATORS = [
    emm("pool"), emm("pool:growth=segment"), emm("pool:growth=vmm"), emm("async"),
    emm("passthrough"),
    Allocator("cuMemAlloc", "cuda", "cuMemAlloc"),
    Allocator("cuMemAllocAsync", "cuda", "cuMemAllocAsync"),
    Allocator("PyTorch", "torch", "native"),
    Allocator("PyTorch expandable", "torch", "native",
              {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
    Allocator("RMM pool", "rmm", "pool", has_fixed=True),
    Allocator("RMM arena", "rmm", "arena", grows=False, has_fixed=True),
    Allocator("RMM async", "rmm", "async"),
    Allocator("CuPy pool", "cupy", "pool"),
]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A row of the table."""
    unit: str
    value: object  # from a program's answer to the figure of the cell
    beside_interpreter: bool = False  # the interpreter's memory stands beside it


@dataclasses.dataclass
class Case:
    name: str
    figures: list
    arguments: list  # of the family's program
    events: str = ""  # the program's input
    metered: bool = False  # the program runs over metered_driver.cpp
    # From the spec of one of emm's plugins to arguments of the emm tool, which answers in the
    # program's place; None: this plugin has no such case. Other families have none.
    tool: object = None


def pair_value(answer):
    return answer["ns_per_pair"]


# All threads together, so that twice the threads should halve the value.
def shared_value(answer):
    return 1000 / max(answer["mpairs_per_s"], 1e-4)


def size_text(size):
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_:
            return f"{size // bytes_} {unit}"
    return f"{size} B"


class Plan:
    """`quick`: as little of everything as still shows that it works."""

    def __init__(self, quick, processors):
        self.rounds = ["2", "0.001"] if quick else ["15", "0.01"]
        self.quick = quick
        self.threads = [n for n in ([2] if quick else [2, 4, 8, 16]) if n <= max(2, processors)]

    def bench(self, case, threads, size, name, value=pair_value):
        unit = "ns a pair" if value is pair_value else "ns a pair, all threads together"
        arguments = ["bench", case, str(threads), str(size), *self.rounds]
        return Case(name, [Figure(unit, value, True)], arguments)

    def costs(self):
        cases = [self.bench("pair", 1, size, f"pair, {size_text(size)}")
                 for size in (256, 64 << 10, 1 << 20)]
        cases.append(self.bench("mixed", 1, 0, "mixed"))
        if not self.quick:
            cases += [self.bench("large", 1, 0, "large"), self.bench("holes", 1, 256, "holes")]
        for threads in self.threads:
            cases.append(self.bench("pair", threads, 256, f"pair, {threads} threads", shared_value))
        for threads in sorted({2, self.threads[-1]}):
            cases.append(self.bench("cross", threads, 256, f"cross, {threads} threads",
                                    shared_value))
        return cases

    def rmm_workloads(self):
        runs = [(500, 1)] if self.quick else [(10_000, 1), (10_000, 64), (1000, 4096)]
        cases = [Case(f"RMM random, up to {size} MiB",
                      [Figure("ns an event", itemgetter("ns_per_event"), True)],
                      ["random", str(count), str(size)]) for count, size in runs]
        return cases + [Case(f"RMM multi-stream, {streams} streams",
                             [Figure("us a round", itemgetter("us_per_round"))],
                             ["streams", str(streams), str(kernels)])
                        for streams, kernels in ([(4, 4)] if self.quick else [(4, 4), (8, 8)])]

    def unordered_pairs(self):
        sizes = [64 << 10] if self.quick else [64 << 10, 1 << 20, 32 << 20]
        return [unordered_pair(name, size, beside)
                for name, beside in (("pair_unordered", ""),
                                     ("pair_busy", " beside work that does not end"))
                for size in sizes]

    def replays(self, folders):
        """The recordings in the folders; the last one of each is quick."""
        cases, names = [], set()
        for folder in folders:
            traces = traces_in(folder)
            for trace in traces[-1:] if self.quick else traces:
                name = name_of(trace)
                name += f" in {folder.name}" if name in names else ""
                names.add(name)
                cases += recording_cases(name, trace)
        return cases


def unordered_pair(name, size, beside):
    def arguments(spec):
        return ["bench", "--plugin", spec, "--case", name, "--size", str(size), "--json"]
    return Case(f"unordered pair, {size_text(size)}{beside}",
                [Figure("ns a pair", pair_value),
                 Figure("driver calls a pair", itemgetter("driver_calls_per_pair"))],
                [], tool=arguments)


def recording_cases(name, trace, rounds=2):
    events = events_of(trace)
    replay = Case(name, [
        Figure(FOOTPRINT, lambda answer: answer["peak_reserved_bytes"] / answer["peak_live_bytes"]),
        Figure("ns an event", itemgetter("ns_per_event"), True),
        Figure("ns an event, p99.9", itemgetter("p999_ns")),
        Figure("ms in its calls, first pass", itemgetter("first_pass_ms"))], ["replay", str(rounds)], events)
    if rounds > 2:
        replay.figures.append(Figure(ROUNDS_FOOTPRINT, lambda answer: answer["peak_reserved_bytes_all_rounds"]
                                     / answer["peak_live_bytes"]))
    meter = Case(name, [
        Figure("ms in the driver, first pass", itemgetter("driver_ms")),
        Figure("driver calls, second half of the first pass",
               itemgetter("driver_calls_second_half")),
        Figure(SECOND_PASS_CALLS, itemgetter("driver_calls_second_pass"))],
                 ["meter"], events, metered=True)
    limit = limit_of(peak_live(events))

    def within_limit(spec):
        plugin, _, settings = spec.partition(":")
        if plugin != "pool":
            return None
        limited = f"{plugin}:{settings}{',' if settings else ''}max={limit}"
        return ["replay", str(trace), "--plugin", limited, "--json"]

    failures = Figure(FAILURES, itemgetter("failed"))
    return [replay, meter, Case(name, [failures], [], tool=within_limit)]


def limit_of(live):
    """1.02 times what is live, in whole pages of 2 MiB."""
    page = 2 << 20
    return -(-live * 102 // (100 * page)) * page


def traces_in(folder):
    return sorted(path for pattern in ("*.csv", "*.csv.gz") for path in folder.glob(pattern))


def name_of(trace):
    return trace.name.removesuffix(".gz").removesuffix(".csv")


def peak_live(events):
    live = most = 0
    for line in events.splitlines():
        op, _, _, size = line.split()
        live += int(size) if op == "+" else -int(size)
        most = max(most, live)
    return most


def events_of(trace):
    """The recording as the programs read it; blocks get numbers without gaps."""
    blocks, lines = {}, []
    opened = gzip.open if trace.suffix == ".gz" else open
    with opened(trace, "rt") as file:
        next(file)
        for line in file:
            _, _, stream, op, block, size = line.rstrip().split(",")
            if op in ("alloc", "free"):
                number = blocks.setdefault(block, len(blocks))
                lines.append(f"{'+' if op == 'alloc' else '-'} {stream} {number} {size}\n")
    return "".join(lines)
