"""What is measured: the allocators and the cases."""
import dataclasses
import gzip


@dataclasses.dataclass(frozen=True)
class Allocator:
    name: str
    family: str
    argument: str
    environment: dict = dataclasses.field(default_factory=dict)
    grows: bool = True
    # Its user can give it a size for good: the smallest that serves a recording is looked for.
    has_fixed: bool = False


def emm(spec):
    return Allocator(f"emm {spec}", "emm", spec, {"EMM_PLUGIN": spec})


REFERENCE = "emm pool"
ALLOCATORS = [
    emm("pool"), emm("pool:growth=vmm"), emm("async"), emm("passthrough"),
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


@dataclasses.dataclass
class Case:
    name: str
    unit: str
    arguments: list
    value: object  # from a program's answer to the figure of the cell
    events: str = ""  # what the program reads


def pair_value(answer):
    return answer["ns_per_pair"]


# All threads together, so that twice the threads ought to halve it.
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
        return Case(name, unit, arguments, value)

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
        cases = [Case(f"RMM random, up to {size} MiB", "ns an event",
                      ["random", str(count), str(size)], lambda answer: answer["ns_per_event"])
                 for count, size in runs]
        return cases + [Case(f"RMM multi-stream, {streams} streams", "us a round",
                             ["streams", str(streams), str(kernels)],
                             lambda answer: answer["us_per_round"])
                        for streams, kernels in ([(4, 4)] if self.quick else [(4, 4), (8, 8)])]

    def replays(self, traces):
        return [Case(name_of(trace), "reserved / live", ["replay"],
                     lambda answer: answer["peak_reserved_bytes"] / answer["peak_live_bytes"],
                     events_of(trace)) for trace in (traces[-1:] if self.quick else traces)]


def name_of(trace):
    return trace.name.split(".")[0]


def events_of(trace):
    """The recording as the programs read it; blocks get numbers without gaps."""
    blocks, lines = {}, []
    opened = gzip.open if trace.suffix == ".gz" else open
    with opened(trace, "rt") as file:
        next(file)
        for line in file:
            _, _, stream, op, block, size = line.rstrip().split(",")
            if op != "mark":
                number = blocks.setdefault(block, len(blocks))
                lines.append(f"{'+' if op == 'alloc' else '-'} {stream} {number} {size}\n")
    return "".join(lines)
