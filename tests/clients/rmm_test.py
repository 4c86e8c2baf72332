#!/usr/bin/env python3
"""rmm_test.py INCLUDE CUDA_INCLUDE LIBEMM CACHE COMPILER...: client-rmm, a program on RMM's C++ interface, built against the
librmm in CACHE and run on the plugin and the driver of the environment.

Exits with 77, to be skipped, where librmm, CUDA's runtime or its headers are missing.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def obstacle(cuda, rmm, logger, runtime):
    """What keeps the program from being built, or None."""
    if not (rmm.is_file() and logger.is_file()):
        return f"there is no {rmm}"
    if not runtime:
        return "CUDA's runtime is not there"
    if not (cuda / "crt/host_defines.h").is_file():
        return f"{cuda} has no crt/host_defines.h, which cuda_runtime_api.h includes"
    version = int(re.search(r"^#define CUDA_VERSION (\d+)", (cuda / "cuda.h").read_text(), re.M).group(1))
    return None if version >= 13000 else f"{cuda} is of CUDA {version // 1000}, librmm of CUDA 13"


def build(compiler, program, include, cuda, libraries):
    rmm = libraries[1].parents[1] / "include"
    folders = [rmm, rmm / "rapids", libraries[2].parents[1] / "include", cuda]
    command = [*compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", include,
               *(word for folder in folders for word in ("-isystem", folder)),
               HERE / "client-rmm/client.cpp", "-o", program, *libraries,
               *(f"-Wl,-rpath,{library.parent}" for library in libraries)]
    return subprocess.run([str(word) for word in command], check=False).returncode


def main(include, cuda, libemm, cache, *compiler):
    cache, cuda = pathlib.Path(cache), pathlib.Path(cuda)
    rmm, logger = cache / "rmm/librmm/lib64/librmm.so", cache / "rmm/rapids_logger/lib64/librapids_logger.so"
    runtime = next((cache / "runtime/cuda-13").rglob("libcudart.so.13"), None)
    reason = obstacle(cuda, rmm, logger, runtime)
    if reason:
        print(f"skipped: {reason}")
        return 77
    with tempfile.TemporaryDirectory(prefix="emm-rmm-") as folder:
        program = pathlib.Path(folder, "client")
        if build(compiler, program, include, cuda, [pathlib.Path(libemm), rmm, logger, runtime]) != 0:
            return 1
        return subprocess.run([program], timeout=100, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
