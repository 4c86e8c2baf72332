#!/usr/bin/env python3
"""pack.py STAGE TREE VERSION SOURCE: the unpacked wheel TREE out of STAGE, an installation below the prefix /usr.

Everything lies in the package: emm/native is the prefix, which finds its parts wherever it comes to lie.
"""
import pathlib
import shutil
import stat
import sys

DISTRIBUTION = "emm_cuda"
LIBDIR = "lib"
# Parts of other projects that are compiled into emm: their licences must go with them.
COMPILED_IN = ("libfmt-dev", "libspdlog-dev", "libcli11-dev", "nlohmann-json3-dev")
METADATA = """\
Metadata-Version: 2.1
Name: emm-cuda
Version: {version}
Summary: a host for CUDA memory allocators that live in shared libraries
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Description-Content-Type: text/markdown

emm hosts CUDA memory allocators that live in shared libraries. `emm run --plugin pool -- python train.py` starts any CUDA
program with its memory on a plugin, and `import emm` gives Numba, CuPy, PyTorch, NumPy and RMM its memory. No compiler and no CUDA
Toolkit are needed, and one wheel serves CUDA 12 and 13: emm opens the driver at run time.
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: emm tools/wheel\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
ENTRY_POINTS = """\
[console_scripts]
emm = emm._command:main

[vllm.general_plugins]
emm = emm.vllm:register
"""


def copy_native(prefix, native):
    """The installation without its links, which no wheel can hold, and without a static library."""
    python = prefix / LIBDIR / "emm/python"
    for path in sorted(prefix.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.suffix == ".a" or python in path.parents:
            continue
        target = native / path.relative_to(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
        executable = path.stat().st_mode & stat.S_IXUSR
        target.chmod(0o755 if executable else 0o644)
    # For -lemm: a linker script in place of a link.
    (native / LIBDIR / "libemm.so").write_text("INPUT(libemm.so.1)\n")


def copy_package(prefix, package, source):
    package.mkdir(parents=True)
    installed = prefix / LIBDIR / "emm/python/emm"
    for path in installed.glob("*.py"):
        shutil.copy(path, package / path.name)
    for folder in ("torch_backend", "in_place_of"):
        shutil.copytree(installed / folder, package / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "tools/python/wheel/_command.py", package / "_command.py")


def copy_licences(folder, source):
    folder.mkdir(parents=True)
    shutil.copy(source / "LICENSE", folder / "LICENSE")
    for name in COMPILED_IN:
        copyright = pathlib.Path("/usr/share/doc") / name / "copyright"
        if not copyright.is_file():
            sys.exit(f"{copyright}: expected the conditions of a library that is compiled in, found no such file")
        shutil.copy(copyright, folder / f"{name}.txt")


def main(stage, tree, version, source, platform):
    prefix, tree, source = pathlib.Path(stage) / "usr", pathlib.Path(tree), pathlib.Path(source)
    shutil.rmtree(tree, ignore_errors=True)
    copy_package(prefix, tree / "emm", source)
    copy_native(prefix, tree / "emm/native")
    info = tree / f"{DISTRIBUTION}-{version}.dist-info"
    copy_licences(info / "licenses", source)
    (info / "METADATA").write_text(METADATA.format(version=version))
    (info / "WHEEL").write_text(WHEEL.format(platform=platform))
    (info / "entry_points.txt").write_text(ENTRY_POINTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
