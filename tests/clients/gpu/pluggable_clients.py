#!/usr/bin/env python3
"""Libraries with PyTorch's pair of functions as plugins (`pluggable`): programs that know nothing of emm. Needs a GPU.

    pluggable_clients.py FOLDER [--only NAME,...] [--times N] [--list] [--no-check | --only-check]

Each program runs natively and under `emm run` on each library, and must print the same. The libraries: that of
PyTorch's documentation, one over cuMemAllocAsync, one over NCCL's memory (compiled here, into FOLDER), RMM's and
torch_memory_saver's, as their packages have them. Then `emm check` on each; its cases that fail are named, and
decide nothing: a library has its own bounds. A library that is missing is skipped by name.
"""
import dataclasses
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import run_clients
from run_clients import EMM, HERE, Program, Way, compare_all, script

TOOLKIT = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
RUNTIME = "libcudart.so.13"
NAMED = 20  # failed cases in the table; the log has all
# Symbols of the runtime are looked up in the folder of each package that may have it.
RUNTIME_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_runtime/lib")


class Missing(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Library:
    name: str
    spec: str
    environment: tuple = ()

    def way(self):
        return Way(self.name, self.spec, self.environment)


def spec(path, alloc, free):
    return f"pluggable:lib={pathlib.Path(path).resolve()},alloc={alloc},free={free}"


def package(name, *inside):
    """The first that is there of these files, or patterns of files, in the folder that holds a package."""
    found = importlib.util.find_spec(name)
    if found is None:
        raise Missing(f"{name} is not installed")
    for folder in found.submodule_search_locations:
        for pattern in inside:
            for path in sorted(pathlib.Path(folder).parent.glob(pattern)):
                return path
    raise Missing(f"{name} has no {' or '.join(inside)}")


def runtime_folder():
    """The folder of the shared CUDA runtime: PyTorch's, else the toolkit's."""
    try:
        return package("nvidia", *(f"{folder}/{RUNTIME}" for folder in RUNTIME_FOLDERS)).parent
    except Missing:
        pass
    if not (TOOLKIT / "lib64" / RUNTIME).exists():
        raise Missing(f"{RUNTIME} is not there")
    return TOOLKIT / "lib64"


def searched(*folders):
    """The variable by which the dynamic linker finds a library's dependencies."""
    known = [os.environ.get("LD_LIBRARY_PATH", "")]
    return ("LD_LIBRARY_PATH", os.pathsep.join(filter(None, [*map(str, folders), *known])))


def compiled(folder, name, *links):
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None or not (TOOLKIT / "include/cuda.h").exists():
        raise Missing("there is no C++ compiler" if compiler is None else f"{TOOLKIT}/include has no cuda.h")
    out = folder / f"libpair-{name}.so"
    done = subprocess.run([compiler, "-O2", "-shared", "-fPIC", f"-I{TOOLKIT}/include",
                           str(HERE / f"programs/pairs/{name}.cpp"), "-o", str(out), *links],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{name}.cpp does not build: {done.stderr.strip().splitlines()[-1]}")
    return out


def linked(library):
    """How to link one by its path, and find it there again."""
    return str(library), f"-Wl,-rpath,{library.parent}"


def documented(folder):
    return Library("cudaMalloc, as documented", spec(
        compiled(folder, "documented", *linked(runtime_folder() / RUNTIME)), "my_malloc", "my_free"))


def ordered(folder):
    stub = TOOLKIT / "lib64/stubs"
    if not (stub / "libcuda.so").exists():
        stub = TOOLKIT / "lib/stubs"
    built = compiled(folder, "ordered", f"-L{stub}", "-lcuda")
    return Library("cuMemAllocAsync", spec(built, "my_malloc", "my_free"))


def rmm(_):
    needs = [package("librmm", "librmm/lib64").resolve(), package("rapids_logger", "rapids_logger/lib64").resolve()]
    return Library("RMM", spec(package("rmm", "rmm/librmm/_torch_allocator.so"), "allocate", "deallocate"),
                   (searched(*needs),))


def torch_memory_saver(_):
    """Its functions end the process outside of a region; the variable makes all of the process one."""
    library = package("torch_memory_saver", "torch_memory_saver_hook_mode_torch_cu13*.so",
                      "torch_memory_saver/torch_memory_saver_hook_mode_torch_cu13*.so")
    return Library("torch_memory_saver", spec(library, "tms_torch_malloc", "tms_torch_free"),
                   (searched(runtime_folder()), ("TMS_INIT_ENABLE", "1")))


def nccl(folder):
    library = package("nvidia", "nvidia/nccl/lib/libnccl.so.2")
    return Library("ncclMemAlloc", spec(compiled(folder, "nccl", *linked(library), *linked(runtime_folder() / RUNTIME)),
                                        "my_malloc", "my_free"))


KINDS = {"documented": documented, "ordered": ordered, "rmm": rmm, "torch_memory_saver": torch_memory_saver, "nccl": nccl}


def libraries(folder):
    """The kinds that are installed. The others are skipped by name."""
    for name, make in KINDS.items():
        try:
            yield make(folder)
        except Missing as lack:
            print(f"skipped: {name}: {lack}", flush=True)


def programs(found):
    ways = (Way("natively"), *(library.way() for library in found))
    return [
        Program("torch features", script("torch_features.py"), ways, "torch"),
        Program("torch training", script("torch_training.py"), ways, "torch"),
        Program("torch training no cache", script("torch_training.py", "--steps", "20"), without_cache(ways), "torch",
                usual=False),
        Program("cupy", script("cupy_memory.py"), ways, "cupy"),
    ]


def without_cache(ways):
    return tuple(dataclasses.replace(way, environment=(*way.environment, *run_clients.NO_CACHE)) for way in ways)


def check(library, folder):
    """`emm check`: how many cases passed, and which failed."""
    done = subprocess.run([EMM, "check", library.spec], env={**os.environ, **dict(library.environment)}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    (folder / f"check-{re.sub('[^A-Za-z]+', '-', library.name)}.log").write_text(done.stdout)
    failed = re.findall(r"^FAIL +(\S+)", done.stdout, re.MULTILINE)
    counts = re.search(r"^\d+ cases: .*", done.stdout, re.MULTILINE)
    last = counts.group() if counts else (done.stdout.strip().splitlines() or ["it said nothing"])[-1]
    named = " ".join(failed[:NAMED]) + (f" and {len(failed) - NAMED} more" if len(failed) > NAMED else "")
    print(f"| {library.name} | {done.returncode} | {last} | {named} |", flush=True)


def main():
    parser = run_clients.options(__doc__.splitlines()[0])
    parser.add_argument("--no-check", action="store_true", help="leave out `emm check`")
    parser.add_argument("--only-check", action="store_true", help="leave out the programs")
    wish = parser.parse_args()
    if wish.list:
        return compare_all(programs([]), parser, wish, None, "")
    folder = wish.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    found = list(libraries(folder))
    if not found:
        print("skipped: no library is there")
        return 77
    status = 0 if wish.only_check else compare_all(programs(found), parser, wish, run_clients.Monitor, "pluggable.json")
    if not wish.no_check:
        print("\n| library | status | emm check | failed |\n|---|---|---|---|")
        for library in found:
            check(library, folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
