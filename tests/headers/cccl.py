#!/usr/bin/env python3
"""Compiles a user of cuda::mr against the CCCL headers that are there.

    cccl.py old|new INCLUDE CUDA_INCLUDE SOURCE COMPILER... -- FOLDER...

`old` are versions before 3.1, `new` the others. Exits with 77, to be skipped, if no folder has any,
or if CUDA_INCLUDE lacks what the runtime's own headers include.
"""
import pathlib
import re
import shutil
import subprocess
import sys

RENAMED = 3001000


def version_of(folder):
    header = pathlib.Path(folder) / "cuda/std/__cccl/version.h"
    if not header.is_file():
        return None
    return int(re.search(r"^#define CCCL_VERSION (\d+)", header.read_text(), re.M).group(1))


def compiles(compiler, include, cuda, folder, source):
    answer = subprocess.run(
        [compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", include,
         "-isystem", folder, "-isystem", cuda, "-fsyntax-only", source],
        capture_output=True, text=True, check=False)
    print(f"{compiler} with CCCL {version_of(folder)} in {folder}: {answer.returncode}\n"
          f"{answer.stderr}", end="")
    return answer.returncode == 0


def main():
    split = sys.argv.index("--")
    which, include, cuda, source, *compilers = sys.argv[1:split]
    found = {version_of(folder): folder for folder in sys.argv[split + 1:]}
    folders = [folder for version, folder in found.items()
               if version is not None and (version >= RENAMED) == (which == "new")]
    if not folders:
        print(f"skipped: no {which} CCCL; found versions {[v for v in found if v]}")
        return 77
    if not (pathlib.Path(cuda) / "crt/host_defines.h").is_file():
        print(f"skipped: {cuda} has no crt/host_defines.h, which cuda_runtime_api.h includes")
        return 77
    compilers = [compiler for compiler in compilers if shutil.which(compiler)]
    results = [compiles(compiler, include, cuda, folder, source)
               for folder in folders for compiler in compilers]
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
