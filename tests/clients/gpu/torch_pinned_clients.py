#!/usr/bin/env python3
"""PyTorch's pinned memory on its own allocator and on emm (emm.torch.use_pinned_memory), on a real GPU.

    torch_pinned_clients.py FOLDER [--only NAME,...] [--times N] [--list]

What a program prints must be the same on both, but for lines that begin with `figure`, whose medians the table shows:
DataLoader(pin_memory=True) with batches of many sizes (batches a second, and how much is pinned for how much in use),
single requests of all sizes, copies whose tensors are freed at once, a graph that reads and writes pinned memory, and
the NUMA node that the memory lies on. The ways take turns. `checks` is torch_programs/pinned.py, on emm alone.
"""
import sys

from run_clients import ROOT, Monitor, Program, Way, compare_all, options, script

EVERY = ("pool", "pool:growth=segment", "async", "passthrough")
CHECKS = ROOT / "tests/clients/python/torch_programs/pinned.py"


def ways(*plugins):
    return (Way("natively"), *(Way(plugin, environment=(("PINNED", plugin),)) for plugin in plugins))


PROGRAMS = [
    Program("loader", script("torch_pinned.py", "loader"), ways("pool"), "torch", times=5),
    Program("requests", script("torch_pinned.py", "requests"), ways("pool"), "torch", times=5),
    Program("copies", script("torch_pinned.py", "copies"), ways(*EVERY), "torch"),
    Program("graph", script("torch_pinned.py", "graph"), ways(*EVERY), "torch"),
    Program("checks", (sys.executable, "-B", str(CHECKS)),
            tuple(Way(plugin, environment=(("EMM_PLUGIN", plugin),)) for plugin in EVERY), "torch"),
    Program("node", script("torch_pinned.py", "node"), ways("pool", "pool:host_node=nearest"), "torch"),
]


def main():
    parser = options(__doc__.splitlines()[0])
    return compare_all(PROGRAMS, parser, parser.parse_args(), Monitor, "torch_pinned.json")


if __name__ == "__main__":
    sys.exit(main())
