"""torch_backend/, compiled for the PyTorch that is installed: once, and then taken from a cache.

The cache is $XDG_CACHE_HOME/emm, else ~/.cache/emm. A file there is named after the versions of
PyTorch and emm, the C++ library's ABI, the source, and how it is compiled.
"""
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile

import torch

from ._api import lib, library_path
from ._constants import EMM_LOG_INFO

PACKAGE = pathlib.Path(__file__).resolve().parent
SOURCE = PACKAGE / "torch_backend/backend.cpp"
COMPILE_SECONDS = 600
# The exports of backend.cpp.
_FUNCTIONS = (
    ("install", [], ctypes.c_char_p),
    ("name_pool", [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p], None),
    ("pool_context", [ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64], ctypes.c_void_p),
)


class Unavailable(Exception):
    """The library cannot be made or loaded; the text says why."""


def compiler():
    """The compiler's command: from CXX, else the first compiler that is installed."""
    for words in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        command = shlex.split(words)
        if shutil.which(command[0]):
            return command
    raise Unavailable("no C++ compiler is installed")


def mapped(*beginnings):
    """The mapped files of this process whose names begin so: the libraries that PyTorch itself uses."""
    found = {}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2].startswith(beginnings):
                found["/" + path] = True
    return [pathlib.Path(path) for path in found]


def folder_with(header, candidates):
    for folder in candidates:
        if (folder / header).is_file():
            return folder
    raise Unavailable(f"{header} is not installed")


def cuda_folders():
    """The folders of NVIDIA's headers. Those of the runtime that PyTorch loads come first. Its package on the
    Python registry lacks crt/; a toolkit has crt/, and so has Triton, which PyTorch includes."""
    named = [pathlib.Path(os.environ[name], "include") for name in ("CUDA_HOME", "CUDA_PATH")
             if os.environ.get(name)]
    triton = importlib.util.find_spec("triton")
    brought = [pathlib.Path(folder, "backends/nvidia/include")
               for folder in (triton.submodule_search_locations if triton else ())]
    runtimes = [path.parent.parent / "include" for path in mapped("libcudart.so")]
    known = [*runtimes, *named, pathlib.Path("/usr/local/cuda/include")]
    api = folder_with("cuda_runtime_api.h", known)
    crt = folder_with("crt/host_config.h", [api, *known, *brought])
    return [api] if crt == api else [api, crt]


def include_folders():
    """The include folders of PyTorch, emm and CUDA."""
    emm = [PACKAGE / "native/include", *(folder / "include" for folder in PACKAGE.parents),
           *(folder / "include" for folder in pathlib.Path(library_path).parents)]
    pytorch = pathlib.Path(torch.__file__).parent / "include"
    return [folder_with("c10/cuda/CUDACachingAllocator.h", [pytorch]), folder_with("emm/emm.h", emm),
            *cuda_folders()]


def cxx11_abi():
    return int(torch._C._GLIBCXX_USE_CXX11_ABI)


def command(output):
    includes = [word for folder in include_folders() for word in ("-isystem", str(folder))]
    # PyTorch's own C++ runtime is in the list for compilers that link one of their own statically: they then take
    # nothing from their own. Two runtimes in one process do not agree on exceptions and streams.
    libraries = [str(path) for path in mapped("libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libcudart.so",
                                              "libstdc++.so", "libgcc_s.so")]
    return [*compiler(), "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={cxx11_abi()}", *includes, str(SOURCE), *libraries,
            library_path, "-o", str(output)]


def cache_folder():
    """The folder for compiled libraries, made for this user alone. A file that another user could have
    written is not loaded."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(base, "emm")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise Unavailable(f"the cache cannot be used: {error}") from error
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unavailable(f"{folder} belongs to another user, or others may write there")
    return folder


def file_name():
    facts = (torch.__version__, str(torch.version.git_version), str(cxx11_abi()),
             platform.machine(), lib.emm_version().decode())
    digest = hashlib.sha256("\n".join(facts).encode())
    for path in (pathlib.Path(__file__), *sorted(SOURCE.parent.iterdir())):
        digest.update(path.read_bytes())
    return f"torch-{torch.__version__}-{digest.hexdigest()[:16]}.so"


@contextlib.contextmanager
def locked(path):
    """Locks the cache: one process compiles, and the others use its result."""
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def first_error(text):
    lines = text.splitlines() or ["it said nothing"]
    return next((line for line in lines if "error" in line), lines[0])


def compile_to(target):
    words = command(target)
    lib.emm_log(EMM_LOG_INFO, f"compiling emm for PyTorch {torch.__version__}: {target}".encode())
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = pathlib.Path(folder, target.name)
        words[-1] = str(made)
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace",
                                  timeout=COMPILE_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{words[0]}: {error}") from error
        if done.returncode != 0:
            raise Unavailable(f"{words[0]} failed: {first_error(done.stderr)}")
        os.replace(made, target)


def library():
    """The path of the library. Compiles the library if necessary."""
    if torch.version.cuda is None:
        raise Unavailable("this PyTorch is built without CUDA")
    if not SOURCE.is_file():
        raise Unavailable(f"{SOURCE} is missing")
    target = cache_folder() / file_name()
    try:
        if not target.is_file():
            with locked(target.with_suffix(".lock")):
                if not target.is_file():
                    compile_to(target)
    except OSError as error:
        raise Unavailable(f"the cache cannot be used: {error}") from error
    return target


def install_pinned(*name_and_options):
    """Makes emm PyTorch's allocator of pinned memory, or raises Unavailable."""
    path = library()
    try:
        entry = ctypes.CDLL(str(path)).emm_torch_backend_install_pinned
    except (OSError, AttributeError) as error:
        raise Unavailable(f"{path} does not load: {error}") from error
    entry.argtypes, entry.restype = [ctypes.c_char_p] * 2, ctypes.c_char_p
    problem = entry(*(text and os.fsencode(text) for text in name_and_options))
    if problem is not None:
        raise Unavailable(problem.decode(errors="replace"))


def install():
    """Makes emm PyTorch's allocator and returns the library, or raises Unavailable."""
    path = library()
    try:
        loaded = ctypes.CDLL(str(path))
        for name, arguments, result in _FUNCTIONS:
            function = getattr(loaded, f"emm_torch_backend_{name}")
            function.argtypes, function.restype = arguments, result
    except (OSError, AttributeError) as error:
        raise Unavailable(f"{path} does not load: {error}") from error
    problem = loaded.emm_torch_backend_install()
    if problem is not None:
        raise Unavailable(problem.decode(errors="replace"))
    return loaded
