#!/usr/bin/env python3
"""wheel_test.py WHEEL [NUMBA]: a wheel in a virtual environment of its own, on the simulated driver, with nothing but that
environment on PATH: no compiler, no CUDA. NUMBA is an environment with numba-cuda.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile

HERE = pathlib.Path(__file__).resolve().parent

# A program on the driver API that knows nothing of emm, by either name of the driver.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
call("cuInit", 0)
context, block = ctypes.c_void_p(), ctypes.c_uint64()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(1 << 20))
call("cuMemFree_v2", block)
print("done")
"""


class Failure(Exception):
    pass


def expect(condition, sentence):
    if not condition:
        raise Failure(sentence)


class Installed:
    """The wheel in a fresh environment."""

    def __init__(self, wheel, folder):
        self.folder = folder / "venv"
        venv.create(self.folder, with_pip=True)
        self.bin = self.folder / "bin"
        self.have_a_pip_that_knows_the_platform()
        self.pip("install", "--no-index", wheel)
        site = self.run(self.bin / "python", "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip()
        self.package = pathlib.Path(site) / "emm"
        self.native = self.package / "native"

    def pip(self, command, *words):
        self.run(self.bin / "python", "-m", "pip", command, "--quiet", "--disable-pip-version-check", *words)

    def have_a_pip_that_knows_the_platform(self):
        """manylinux_2_28 is for pip 20.3 and later; Python 3.9 of Ubuntu 20.04 brings 20.0."""
        version = self.run(self.bin / "python", "-m", "pip", "--version").split()[1]
        if [int(number) for number in version.split(".")[:2]] < [20, 3]:
            self.pip("install", "--upgrade", "pip")

    def run(self, *command, **variables):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("EMM_", "LD_", "PYTHON", "CUDA_", "NUMBA_", "PKG_CONFIG", "PATH"))}
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd="/",
                              env={**kept, "PATH": str(self.bin), "EMM_DRIVER": "sim", **variables}, timeout=300)
        if done.returncode != 0:
            raise Failure(f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def python(self, text, *arguments, **variables):
        return self.run(self.bin / "python", "-c", text, *arguments, **variables)

    def emm(self, *words, **variables):
        return self.run(self.bin / "emm", *words, **variables)


def the_command_finds_its_tree(installed):
    said = json.loads(installed.emm("info", "--json", EMM_PLUGIN="pool"))
    expect(said["plugin"]["path"] == str(installed.native / "lib/emm/libemm-pool.so"), f"emm info: {said['plugin']}")
    expect(said["driver"]["simulated"] is True, f"emm info: {said['driver']}")
    found = {plugin["name"] for plugin in said["plugins"]}
    expect({"pool", "async", "managed", "passthrough", "pluggable"} <= found, f"emm info found the plugins {found}")


def programs_run_on_a_plugin(installed, folder):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    for number, driver in enumerate(("libcuda.so.1", "libcuda.so")):
        log = folder / f"log-{number}.csv"
        said = installed.emm("run", "--plugin", "pool", "--record", log, "--", installed.bin / "python", program, driver)
        expect(said == "done\n", f"a program on {driver} under emm run: {said}")
        expect("1048576" in log.read_text(), f"no allocation of a program on {driver} went to the plugin: {log.read_text()}")


def python_finds_its_library(installed):
    said = installed.python("import emm; print(emm.library_path); print(emm.plugin_info().name.decode())", EMM_PLUGIN="pool")
    expect(said.split() == [str(installed.native / "lib/libemm.so.1"), "pool"], f"import emm: {said}")


def bridges_load(installed):
    """The functions that CuPy and PyTorch call lie beside libemm."""
    bridge = installed.native / "lib/libemm-bridge.so.1"
    installed.python("import ctypes, sys; ctypes.CDLL(sys.argv[1])", bridge)


def servers_find_their_interfaces(installed):
    """vLLM's entry point, which does nothing where there is no vLLM, and the package in torch_memory_saver's place."""
    said = installed.python("from importlib.metadata import distribution\n"
                            "for entry in distribution('emm-cuda').entry_points:\n"
                            "    if entry.group == 'vllm.general_plugins':\n"
                            "        print(entry.name, entry.load()())")
    expect(said == "emm None\n", f"the entry points for vLLM: {said}")
    folder = installed.run(installed.bin / "python", "-m", "emm.torch_memory_saver").strip()
    said = installed.python("import torch_memory_saver; print(torch_memory_saver.torch_memory_saver.enabled)", PYTHONPATH=folder)
    expect(said == "True\n", f"torch_memory_saver in {folder}: {said}")


def numba_runs(installed, numba):
    site = next((pathlib.Path(numba).resolve() / "lib").glob("python*/site-packages"))
    # A site's folder, unlike one of PYTHONPATH, may redirect imports, as numba-cuda's does.
    (installed.package.parent / "numba.pth").write_text(f"import site; site.addsitedir({str(site)!r})\n")
    said = installed.run(installed.bin / "python", HERE / "python/numba_test.py", EMM_PLUGIN="pool",
                         NUMBA_CUDA_MEMORY_MANAGER="emm.numba", PYTHONDONTWRITEBYTECODE="1",
                         LD_LIBRARY_PATH=str(installed.native / "lib/emm/sim"))
    print(said.strip().splitlines()[-1] if said.strip() else "numba_test.py passed")


def libraries_export_what_they_should(native):
    """emm_* alone, the plugins their entry: so no runtime of C++ is shared with a program's."""
    if not shutil.which("nm"):
        print("skipped: there is no nm to list exports with")
        return
    for library in [*native.glob("lib/*.so.1"), *native.glob("lib/emm/libemm-*.so")]:
        listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
        names = {re.split("@", line.split()[-1])[0] for line in listing.splitlines()}
        strange = {name for name in names if not name.startswith(("emm_", "EMM_"))}
        expect(names and not strange, f"{library} exports {strange or 'nothing'}")
        needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
        expect("libstdc++" not in needed and "libcuda" not in needed, f"{library} needs more than it should:\n{needed}")


def a_project_builds_against_it(installed, folder):
    """Where there are a compiler and pkg-config; -lemm finds the linker script that stands for a link."""
    if not (shutil.which("cc") and shutil.which("pkg-config")):
        print("skipped: there is no compiler here")
        return
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "emm"], capture_output=True, text=True, check=True,
                           env={**os.environ, "PKG_CONFIG_PATH": str(installed.native / "lib/pkgconfig")}).stdout.split()
    program = folder / "client"
    subprocess.run(["cc", "-std=c11", HERE / "client-c/client.c", "-o", program, *flags], check=True)
    said = installed.run(program, LD_LIBRARY_PATH=str(installed.native / "lib"), EMM_PLUGIN="pool")
    expect(said.endswith("done\n") and "plugin: pool" in said, f"a client of the wheel: {said}")


def the_wheel_says_what_it_is(wheel):
    name = pathlib.Path(wheel).name
    found = re.fullmatch(r"emm_cuda-[\d.]+-py3-none-manylinux_2_(\d+)_\w+\.whl", name)
    expect(found and int(found[1]) <= 28, f"its name is {name}")
    with zipfile.ZipFile(wheel) as archive:
        info = next(name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        tag = re.search("^Tag: (.*)$", archive.read(info).decode(), re.M)[1]
    expect(name.endswith(f"-{tag}.whl"), f"its name is {name} and its tag {tag}")


def test(wheel, numba, folder):
    the_wheel_says_what_it_is(wheel)
    installed = Installed(wheel, folder)
    the_command_finds_its_tree(installed)
    programs_run_on_a_plugin(installed, folder)
    python_finds_its_library(installed)
    bridges_load(installed)
    servers_find_their_interfaces(installed)
    libraries_export_what_they_should(installed.native)
    a_project_builds_against_it(installed, folder)
    if numba:
        numba_runs(installed, numba)
    installed.pip("uninstall", "--yes", "emm-cuda")
    expect(not (installed.bin / "emm").exists(), "pip leaves the command behind")


def main(wheel, numba=None):
    with tempfile.TemporaryDirectory(prefix="emm-wheel-") as folder:
        try:
            test(pathlib.Path(wheel).resolve(), numba, pathlib.Path(folder).resolve())
        except Failure as failure:
            print(failure)
            return 1
    print(f"{pathlib.Path(wheel).name} serves programs")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
