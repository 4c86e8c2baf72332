#!/usr/bin/env python3
"""NumPy's arrays in pinned memory beside its own. Copies need a GPU to mean something.

    numpy_clients.py FOLDER [--no-suite]

Prints how fast arrays are copied to and from the device, and what making one costs. Then come
NumPy's own tests with every array pinned, if pytest and hypothesis are there.
"""
import argparse
import ctypes
import importlib.util
import os
import pathlib
import subprocess
import sys
import time
import warnings

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

os.environ.setdefault("EMM_PLUGIN", "pool")
warnings.simplefilter("ignore", DeprecationWarning)  # about forks beside threads

import emm
import emm.numpy

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB = 1 << 10, 1 << 20
TESTS = ["test_mem_policy", "test_multiarray", "test_item_selection", "test_regression",
         "test_records", "test_shape_base", "test_indexing", "test_array_coercion"]


def driver(name, *types):
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *types)
    entry = emm.lib.emm_driver_entry(name.encode(), 12000)
    return prototype(ctypes.cast(entry, ctypes.c_void_p).value)


class Copies:
    def __init__(self, context):
        info = emm.ContextInfo()
        emm.check(emm.lib.emm_context_get_info(context, ctypes.byref(info)))
        driver("cuCtxSetCurrent", ctypes.c_void_p)(info.cuda_context)
        self.to_device = driver("cuMemcpyHtoD", ctypes.c_ulonglong, ctypes.c_void_p, ctypes.c_size_t)
        self.to_host = driver("cuMemcpyDtoH", ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_size_t)
        self.device = ctypes.c_ulonglong()
        emm.check(emm.lib.emm_memalloc(context, 256 * MIB, None, ctypes.byref(self.device)))

    def rate(self, array, to_device):
        """GB/s, the best of some."""
        copy = self.to_device if to_device else self.to_host
        both = (self.device, array.ctypes.data) if to_device else (array.ctypes.data, self.device)
        best, rounds = 0.0, max(1, 4 * MIB // array.nbytes)
        for _ in range(8):
            begun = time.perf_counter()
            for _ in range(rounds):
                if copy(*both, array.nbytes) != 0:
                    raise SystemExit("a copy failed")
            best = max(best, rounds * array.nbytes / (time.perf_counter() - begun) / 1e9)
        return best


def made(size, pinned):
    with emm.numpy.pinned() if pinned else numpy.errstate():
        array = numpy.empty(size, numpy.uint8)
    array[:] = 1
    return array


def cost_ns(size, pinned, count=20_000):
    with emm.numpy.pinned() if pinned else numpy.errstate():
        for _ in range(count // 10):
            numpy.empty(size, numpy.uint8)
        begun = time.perf_counter()
        for _ in range(count):
            numpy.empty(size, numpy.uint8)
        return (time.perf_counter() - begun) / count * 1e9


def in_a_child():
    """Whether a forked child can read what lay in pinned memory, and frees it without harm."""
    array = made(MIB, pinned=True)
    child = os.fork()
    if child == 0:
        del array
        with emm.numpy.pinned():
            os._exit(int(numpy.ones(1000).sum()) - 1000)
    return os.waitpid(child, 0)[1]


def suite(folder):
    missing = [name for name in ("pytest", "hypothesis") if not importlib.util.find_spec(name)]
    if missing:
        print(f"skipped, NumPy's own tests: {' and '.join(missing)} missing")
        return 0
    core = "numpy._core" if importlib.util.find_spec("numpy._core") else "numpy.core"
    spread = ["-n", "12"] if importlib.util.find_spec("xdist") else []
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *spread,
                           "-p", "pinned_suite", "--pyargs",
                           *(f"{core}.tests.{name}" for name in TESTS)],
                          text=True, capture_output=True, env=environment, cwd=HERE, timeout=280,
                          check=False)
    (folder / "numpy-suite.log").write_text(done.stdout + done.stderr)
    lines = done.stdout.splitlines()
    print("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR"))))
    print(f"NumPy's own tests ({', '.join(TESTS)}): {lines[-1] if lines else done.stderr[-500:]}")
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--no-suite", action="store_true")
    args = parser.parse_args()
    context = emm.context_for_device(0)
    copies = Copies(context)
    print(f"NumPy {numpy.__version__}, plugin {emm.plugin_info().spec.decode()}\n\n"
          "| array | to the device: ordinary / pinned GB/s | to the host: ordinary / pinned GB/s "
          "| numpy.empty: ordinary / pinned ns |\n|---|---|---|---|", flush=True)
    for size in (64 * KIB, MIB, 16 * MIB, 256 * MIB):
        ordinary, pinned = made(size, False), made(size, True)
        rates = [copies.rate(array, to_device) for to_device in (True, False)
                 for array in (ordinary, pinned)]
        costs = [cost_ns(size, how, 2000) for how in (False, True)]
        print(f"| {size // KIB} KiB | {rates[0]:.1f} / {rates[1]:.1f} | {rates[2]:.1f} / {rates[3]:.1f} "
              f"| {costs[0]:.0f} / {costs[1]:.0f} |", flush=True)
    status = in_a_child()
    print(f"\na forked child frees a pinned array and makes another: {status or 'good'}", flush=True)
    return 1 if (not args.no_suite and suite(args.folder)) or status else 0


if __name__ == "__main__":
    sys.exit(main())
