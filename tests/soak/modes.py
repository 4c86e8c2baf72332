"""The modes: a program, the plugin it runs on, and what happens to it meanwhile."""
import dataclasses
import pathlib
import sys

MIB = 1 << 20
# A context leaves a record with each of its pools permanently, which says that it has died: its number is never used again.
KEPT_OF_CONTEXT = 4096  # bytes
# The C library returns freed memory to the system, so that only live memory is seen.
ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
# Growth over the run that is not worth a failure: the C library's arenas and tables of the simulated driver still grow.
LEAST = {"host memory": 4 * MIB, "descriptors": 3, "threads": 3, "children": 3, "reserved": 16 * MIB}
ENDLESS = 1 << 30  # rounds: more than there is time for


@dataclasses.dataclass(frozen=True)
class Mode:
    what: str  # for `list`
    command: tuple  # {build} and {seconds} are filled in
    variables: dict
    pauses: bool = False  # `emm pause` and `emm resume`, again and again
    ends: bool = True  # the program ends by itself after {seconds}; else it is killed
    tells_reserved: bool = True  # it can be asked
    takes_gpu: bool = False  # `all` leaves it out, and EMM_DRIVER does not count


def calls(what, spec, *settings, **variables):
    return Mode(f"random calls on {spec}{what}: contexts and threads come and go, peers are killed, forks, resets, trims, pauses",
                ("{build}/tests/model/model", "seconds={seconds}", *settings),
                {"EMM_PLUGIN": spec, "EMM_LOG": "off", "EMM_SIM": "devices=2,memory=16GiB,progress=random", **variables})


def threads(spec, *settings):
    return Mode(f"8 threads at a time on {spec}: threads, contexts, streams and captures come and go",
                ("{build}/tests/threads/traffic", "threads=8", "contexts=2", "live=100", "read_back=1", "captures=1",
                 "steps=8000", "lives=4", f"rounds={ENDLESS}", *settings),
                {"EMM_PLUGIN": spec, "EMM_SIM": "devices=2,progress=random"}, ends=False)


def client(spec, what="", pauses=False, *options, **variables):
    return Mode(f"a program on the driver API under emm run on {spec}{what}: threads, contexts, pools and graphs come and go",
                ("{build}/tools/emm/emm", "run", "--plugin", spec, *options, "--", "{build}/tests/interpose/driver-traffic",
                 "steps=6000", f"rounds={ENDLESS}", *(["scarce=1"] if variables else [])),
                {"EMM_SIM": "devices=3,memory=8GiB,progress=random", **variables}, pauses=pauses, ends=False,
                tells_reserved=not pauses) # a process that is being paused does not answer


def peers(spec):
    return Mode(f"memory shared on {spec} with processes that are killed",
                ("{build}/tests/process/ipc", str(ENDLESS)), {"EMM_PLUGIN": spec, "EMM_SIM": "memory=8GiB"}, ends=False)


def framework(name, spec):
    program = pathlib.Path(__file__).resolve().parent / "framework.py"
    return Mode(f"{name} under emm run on {spec}, on a GPU: threads and streams come and go, its cache is emptied",
                ("{build}/tools/emm/emm", "run", "--plugin", spec, "--", sys.executable, str(program), name, "{seconds}"), {},
                takes_gpu=True)


MODES = {
    "calls-passthrough": calls("", "passthrough"),
    "calls-async": calls("", "async"),
    "calls-managed": calls("", "managed"),
    "calls-pool": calls("", "pool"),
    "calls-pool-segment": calls("", "pool:growth=segment"),
    "calls-count": calls("", "count+pool"),
    "calls-faults": calls(", driver calls failing", "pool", "faults=8"),
    "calls-max": calls(" within its maximum", "pool:max=64MiB,slack=0", "tight=1", "most=64"),
    "calls-spill": calls(" within its maximum, spilling", "pool:max=16MiB,spill=64MiB", "tight=1", "most=80"),
    "calls-limit": calls(" within a bound", "pool", "tight=1", EMM_LIMIT="64MiB"),
    "calls-tracked": calls(", tracked", "pool", EMM_TRACK="stack"),
    "threads-passthrough": threads("passthrough"),
    "threads-async": threads("async"),
    "threads-managed": threads("managed"),
    "threads-pool": threads("pool"),
    "threads-pool-segment": threads("pool:growth=segment"),
    "threads-fault": threads("fault:share=0.02,seed=7,times=1+pool", "tight=1"),
    "threads-guard": threads("guard+pool"), # pauses are refused, which calls-* do not expect
    "client-passthrough": client("passthrough"),
    "client-async": client("async"),
    "client-pool": client("pool"),
    "client-limit": client("pool", " within a bound", EMM_LIMIT="384MiB"),
    "client-paused": client("pool", ", paused again and again", True, "--pausable"),
    "peers-passthrough": peers("passthrough"),
    "peers-async": peers("async:ipc=1"),
    "peers-pool": peers("pool"),
    "gpu-torch": framework("torch", "pool"),
    "gpu-cupy": framework("cupy", "pool"),
}
