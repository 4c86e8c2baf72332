#!/usr/bin/env python3
"""link.py COMPILER FOLDER: how a wheel is linked for glibc 2.28 where there is a later one. Makes in FOLDER what that takes,
and prints the arguments for linking C, and those for C++ in a second line, as Meson reads lists.

glibc has each function in all the versions that it ever had, and the linker takes the latest. Most of what emm calls is the
same in the old one, which 2.34 moved into libc.so.6. So the linker first sees the libraries where these functions were
before, with their versions of then. What 2.28 lacks altogether is since.c and clock_wait.c.
"""
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# Where a function was in 2.28, and since which version on x86-64; 0: since the first.
FIRST = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}
MOVED = {
    "libdl.so.2": {"dladdr": 0, "dladdr1": "GLIBC_2.3.3", "dlclose": 0, "dlerror": 0, "dlinfo": "GLIBC_2.3.3", "dlopen": 0,
                   "dlsym": 0, "dlvsym": 0},
    "libpthread.so.0": {
        "pthread_attr_getstack": 0, "pthread_cancel": 0, "pthread_create": 0, "pthread_detach": 0, "pthread_getattr_np": 0,
        "pthread_getspecific": 0, "pthread_join": 0,
        "pthread_key_create": 0, "pthread_key_delete": 0, "pthread_kill": 0, "pthread_mutex_timedlock": 0,
        "pthread_mutex_trylock": 0, "pthread_once": 0, "pthread_rwlock_rdlock": 0, "pthread_rwlock_tryrdlock": 0,
        "pthread_rwlock_trywrlock": 0, "pthread_rwlock_unlock": 0, "pthread_rwlock_wrlock": 0,
        "pthread_setaffinity_np": "GLIBC_2.3.4", "pthread_setname_np": "GLIBC_2.12", "pthread_setspecific": 0,
        "pthread_sigmask": 0, "sem_destroy": 0, "sem_init": 0, "sem_post": 0, "sem_timedwait": 0, "sem_wait": 0},
}


def version_script(functions, machine):
    """The functions by version; the linker wants each version once."""
    versions = {}
    for name, since in functions.items():
        versions.setdefault(FIRST[machine] if since == 0 or machine != "x86_64" else since, []).append(name)
    return "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in versions.items())


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def make_library(compiler, folder, name, functions):
    """A file from which the linker reads names and versions. Nothing ever runs in it."""
    source, script, library = folder / f"{name}.c", folder / f"{name}.map", folder / name
    source.write_text("".join(f"void {function}(void) {{}}\n" for function in functions))
    script.write_text(version_script(functions, platform.machine()))
    run(compiler, "-shared", "-fPIC", "-nostdlib", "-fno-builtin", source, "-o", library, f"-Wl,-soname,{name}",
        f"-Wl,--version-script={script}")
    return library


def make_object(compiler, folder, name):
    result = folder / f"{name}.o"
    run(compiler, "-std=gnu11", "-O2", "-fPIC", "-fno-builtin", "-ffunction-sections", "-fdata-sections", "-pthread",
        "-U_FORTIFY_SOURCE", "-c", HERE / f"{name}.c", "-o", result)
    return result


def main(compiler, folder):
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    libraries = [make_library(compiler, folder, name, functions) for name, functions in MOVED.items()]
    since, clock_wait = (make_object(compiler, folder, name) for name in ("since", "clock_wait"))
    # Needed by name, because glibc 2.28 finds these functions nowhere else.
    needed = ",".join(["-Wl,--push-state,--no-as-needed", *map(str, libraries), "--pop-state"])
    for objects in ([since], [since, clock_wait]):
        print([*map(str, objects), needed, "-Wl,--gc-sections"])


if __name__ == "__main__":
    main(*sys.argv[1:])
