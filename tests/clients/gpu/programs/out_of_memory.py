"""out_of_memory.py LOG: PyTorch, CuPy and JAX share a GPU until memory runs out; what emm's report says of each.

Run by `emm run --track module` with EMM_LOG=error:LOG. The report is printed as it is, and compared with what
each library was given, and with what nvidia-smi says that the device has in use.
"""
import os
import re
import subprocess
import sys

os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"  # JAX then takes only what it needs, not most of the device

import cupy  # noqa: E402
import jax.numpy  # noqa: E402
import torch  # noqa: E402

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
GIB = 1 << 30
wrong = []


def used_by_all():
    """Bytes in use on the device, read in a process that emm does not serve."""
    plain = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    told = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], text=True,
                          env=plain, stdout=subprocess.PIPE, check=True).stdout
    return int(told.split()[0]) << 20


def expect(what, found, wanted, tolerance):
    print(f"{what}: {found / GIB:.3f} GiB, expected {wanted / GIB:.3f}")
    if abs(found - wanted) > tolerance * wanted:
        wrong.append(what)


def figure(report, pattern):
    """The number of bytes that a line of the report begins with, or that follows its name."""
    found = re.search(pattern, report)
    if found is None:
        wrong.append(f"no line {pattern!r}")
        return 0
    return float(found.group(1)) * UNITS[found.group(2)]


PART = r"[a-z ,]+ by \w+:\n"  # how a list of holders begins


def holders(report, title):
    """The lines of a list of holders."""
    return re.split(PART, report.partition(title + ":\n")[2])[0]


def held_by(part, library):
    return figure(part, rf"([\d.]+) (\w+) .*{library}")


def main():
    log = sys.argv[1]
    others = used_by_all()
    blocks = [torch.ones(GIB // 4, dtype=torch.float32, device="cuda") for _ in range(4)]
    kept = cupy.ones(3 * GIB // 4, dtype=cupy.float32), jax.numpy.ones(GIB // 2, dtype=jax.numpy.float32)
    kept[1].block_until_ready()
    try:
        while True:
            blocks.append(torch.empty(GIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        print("torch.OutOfMemoryError:", str(error).split(". ", maxsplit=1)[0])
    used = used_by_all() - others
    with open(log, encoding="utf-8", errors="replace") as file:
        report = file.read()
    print(report)
    if "out of device memory" not in report:
        sys.exit("there is no report")
    live = holders(report, "live by library")
    taken = holders(report, "taken from the driver itself, by library")  # where JAX's memory comes from
    expect("PyTorch holds", held_by(live, "libc10_cuda"), torch.cuda.memory_reserved(), 0.01)
    expect("CuPy holds", held_by(live, "cupy"), cupy.get_default_memory_pool().total_bytes(), 0.01)
    of_jax = held_by(taken, "xla")
    expect("JAX holds", of_jax, kept[1].nbytes, 0.05)  # it has scratch space too
    expect("reserved, JAX's and the remainder, beside nvidia-smi",
           figure(report, r"reserved +([\d.]+) (\w+)") + of_jax + figure(report, r"remainder +([\d.]+) (\w+)"),
           used, 0.01)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
