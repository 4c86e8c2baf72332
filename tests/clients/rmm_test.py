#!/usr/bin/env python3
"""rmm_test.py INCLUDES CUDA_INCLUDE LIBRARIES CACHE COMPILER...: client-rmm, a program on RMM's C++ interface, built against the
librmm in CACHE and run on the plugin and the driver of the environment. INCLUDES and LIBRARIES are emm's, separated by colons.

Exits with 77, to be skipped, where librmm, CUDA's runtime or its headers are missing.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def obstacle(cuda, rmm, logger, runtime):
    """The reason why the program cannot be built, or None."""
    if not (rmm.is_file() and logger.is_file()):
        return f"there is no {rmm}"
    if not runtime:
        return "CUDA's runtime is not there"
    if not (cuda / "crt/host_defines.h").is_file():
        return f"{cuda} has no crt/host_defines.h, which cuda_runtime_api.h includes"
    version = int(re.search(r"^#define CUDA_VERSION (\d+)", (cuda / "cuda.h").read_text(), re.M).group(1))
    return None if version >= 13000 else f"{cuda} is of CUDA {version // 1000}, librmm of CUDA 13"


def compiles(compiler, includes, system_includes, *rest, **options):
    command = [*compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
               *(f"-I{folder}" for folder in includes),
               *(word for folder in system_includes for word in ("-isystem", folder)), *rest]
    return subprocess.run([str(word) for word in command], check=False, **options).returncode == 0


def knows_rmm(compiler, headers):
    """Whether a compiler takes RMM's headers by themselves, as clang 14 does not."""
    return compiles(compiler, [], headers, "-fsyntax-only", "-x", "c++", "-", text=True,
                    input="#include <rmm/device_buffer.hpp>\n", stderr=subprocess.DEVNULL)


def main(includes, cuda, libraries, cache, *compiler):
    cache, cuda = pathlib.Path(cache), pathlib.Path(cuda)
    rmm, logger = cache / "rmm/librmm", cache / "rmm/rapids_logger"
    of_rmm = [rmm / "lib64/librmm.so", logger / "lib64/librapids_logger.so"]
    runtime = next((cache / "runtime/cuda-13").rglob("libcudart.so.13"), None)
    reason = obstacle(cuda, *of_rmm, runtime)
    if reason:
        print(f"skipped: {reason}")
        return 77
    headers = [rmm / "include", rmm / "include/rapids", logger / "include", cuda]
    linked = [*map(pathlib.Path, libraries.split(":")), *of_rmm, runtime]
    with tempfile.TemporaryDirectory(prefix="emm-rmm-") as folder:
        program = pathlib.Path(folder, "client")
        if not compiles(compiler, includes.split(":"), headers, HERE / "client-rmm/client.cpp", "-o", program,
                        *linked, *(f"-Wl,-rpath,{library.parent}" for library in linked)):
            if knows_rmm(compiler, headers):
                return 1
            print(f"skipped: {' '.join(compiler)} does not compile RMM's headers")
            return 77
        return subprocess.run([program], timeout=100, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
