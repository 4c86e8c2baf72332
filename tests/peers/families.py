"""The families of allocators: where each one's program is, or why there is none."""
import importlib.util
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOOL, LIB = HERE / "../../tools/emm", HERE / "../../lib"
SOURCES = [HERE / "driver.cpp", HERE / "recording.cpp", TOOL / "bench/team.cpp",
           TOOL / "clock.cpp", TOOL / "statistics.cpp", LIB / "observe/events/clock.cpp"]


class Missing(Exception):
    """The text in the cells of a family that cannot be measured; `detail` goes under the table."""

    def __init__(self, cell, detail=""):
        super().__init__(cell)
        self.detail = detail


def package(name):
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise Missing("not installed", f"this Python has no package {name}")
    return pathlib.Path(list(found.submodule_search_locations)[0])


def toolkit():
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    for root in (pathlib.Path(nvcc).resolve().parent.parent, pathlib.Path("/usr/local/cuda")):
        if (root / "include/cuda_runtime_api.h").exists():
            return root
    raise Missing("cannot be built", "no CUDA Toolkit with cuda_runtime_api.h was found")


def runtime_library():
    for folder in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
        for name in ("libcudart_static.a", "libcudart.so"):
            if (toolkit() / folder / name).exists():
                return toolkit() / folder / name
    raise Missing("cannot be built", f"no CUDA runtime library was found in {toolkit()}")


def compile_peer(name, include, link, folder):
    program = folder / f"peer-{name}"
    include = [*include, HERE / "../../include", toolkit() / "include", TOOL, LIB, HERE]
    # Without NDEBUG, assertions in RMM's headers would be measured, too.
    command = ["c++", "-std=c++20", "-O2", "-DNDEBUG", "-D_GNU_SOURCE",
               *(f"-I{path}" for path in include), HERE / f"{name}.cpp", *SOURCES,
               "-o", program, *link, "-lpthread", "-ldl", "-lrt"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    (folder / f"peer-{name}.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines()
                  if "error" in line or "undefined" in line]
        raise Missing("cannot be built", (errors or ["the compiler failed"])[0])
    return [str(program)]


def library_path(*folders):
    return [word for folder in folders for word in (f"-L{folder}", f"-Wl,-rpath,{folder}")]


def build_torch(_, folder):
    torch = package("torch")
    runtime = []
    try:
        runtime = list(package("nvidia").glob("*/lib"))
    except Missing:
        pass
    link = [*library_path(torch / "lib", *runtime), "-lc10_cuda", "-lc10",
            "-Wl,--allow-shlib-undefined"]
    return compile_peer("torch", [torch / "include"], link, folder)


def build_rmm(_, folder):
    rmm, logger = package("librmm"), package("rapids_logger")
    # RMM brings the C++ headers that it needs; they come before the toolkit's.
    include = [rmm / "include/rapids", rmm / "include", logger / "include"]
    runtime = runtime_library()
    link = [*library_path(rmm / "lib64", logger / "lib64", runtime.parent), "-lrmm",
            "-lrapids_logger", runtime]
    return compile_peer("rmm", include, link, folder)


def build_cupy(_, __):
    package("cupy")
    return [sys.executable, str(HERE / "cupy_pool.py")]


def built_program(name):
    def find(build, _):
        program = build / "tests/peers" / name
        if not program.exists():
            raise Missing("not built", f"{program} is not there")
        return [str(program)]
    return find


def driver_in_use():
    """The file that this process has as its driver."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = pathlib.Path(line[line.find("/"):])
        if path.name.startswith("libcuda.so"):
            return path
    raise Missing("-", "the file of the driver was not found, so it cannot be metered")


def metered_driver(build, folder, on_gpu):
    """metered_driver.cpp in a folder of its own, with the driver beside it."""
    library = build / "tests/peers/libcuda.so.1"
    driver = driver_in_use() if on_gpu else build / "tools/simcuda/libcuda.so.1"
    for needed in (library, driver):
        if not needed.exists():
            raise Missing("-", f"the driver cannot be metered: {needed} is not there")
    place = folder / "driver"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "libreal-driver.so").symlink_to(driver)
    return pathlib.Path(shutil.copy(library, place))


BUILDERS = {"emm": built_program("peer-emm"), "cuda": built_program("peer-cuda"),
            "torch": build_torch, "rmm": build_rmm, "cupy": build_cupy}
