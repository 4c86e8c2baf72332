#!/usr/bin/env python3
"""Records the allocations of train_gpt.py or infer_gpt.py as a trace that `emm replay` reads.

    record.py train -o train_gpt.csv.gz          the options after -- go to the program
    record.py infer -o infer_gpt.csv.gz -- --requests 12

Needs PyTorch and a CUDA device. Beside the trace it writes a .txt that says how it was made.
"""
import argparse
import datetime
import importlib
import os
import platform
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import snapshot_to_trace

PROGRAMS = {"train": "train_gpt", "infer": "infer_gpt"}
MAX_ENTRIES = 4_000_000
MAX_BYTES = 300_000


def record(program, options):
    """Runs the program from its first allocation on: (snapshot, the step of each mark)."""
    import torch
    marks = []

    def mark(step):
        torch.cuda.memory._snapshot()
        marks.append(step)

    torch.cuda.init()
    # Python frames tell the program's thread from autograd's.
    torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python",
                                             max_entries=MAX_ENTRIES)
    if torch.cuda.memory_allocated() or torch.cuda.memory_reserved():
        raise SystemExit("error: something was allocated before the recording began")
    importlib.import_module(program).main(options, mark)
    torch.cuda.synchronize()
    return torch.cuda.memory._snapshot(), marks


def summary(program, options, rows, packed, kept):
    """The text that goes beside the trace."""
    import torch
    lines = {
        "program": " ".join([f"{program}.py", *options]),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(),
    }
    lines.update(snapshot_to_trace.describe(rows))
    lines["bytes compressed"] = len(packed)
    if kept is not None:
        lines["cut"] = f"after step {kept}, to stay under {MAX_BYTES} bytes"
    return "".join(f"{name}: {value}\n" for name, value in lines.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("-o", "--output", required=True, help="the .csv.gz to write")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = sys.argv[split + 1:]
    args = parser.parse_args(sys.argv[1:split])
    try:
        import torch
    except ImportError:
        raise SystemExit("error: recording needs PyTorch, and this Python has none") from None
    if not torch.cuda.is_available():
        raise SystemExit("error: recording needs a CUDA device, and PyTorch sees none")

    program = PROGRAMS[args.program]
    snapshot, marks = record(program, options)
    rows = snapshot_to_trace.convert(snapshot, marks, MAX_ENTRIES)
    rows, packed, kept = snapshot_to_trace.fit(rows, MAX_BYTES)
    text = summary(program, options, rows, packed, kept)
    with open(args.output, "wb") as out:
        out.write(packed)
    with open(args.output.replace(".csv.gz", "") + ".txt", "w", encoding="utf-8") as out:
        out.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
