#!/usr/bin/env python3
"""static_test.py BUILD: a C program with libemm.a inside, from the installation of a build with -Ddefault_library=both.

It needs no libemm.so, and finds plugins and the simulated driver where EMM_PLUGIN_PATH and EMM_DRIVER say.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(*command, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EMM_", "LD_"))}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True,
                          env={**kept, **variables}).stdout


def main(build):
    with tempfile.TemporaryDirectory(prefix="emm-static-") as folder:
        run("meson", "install", "-C", build, "--no-rebuild", "--destdir", folder)
        library = next(pathlib.Path(folder).rglob("libemm.a")).parent
        flags = run("pkg-config", "--static", "--cflags", "--libs", "emm", PKG_CONFIG_PATH=str(library / "pkgconfig"))
        program = pathlib.Path(folder, "client")
        # -lemm would take libemm.so, in the same folder.
        run("cc", "-std=c11", HERE / "client-c/client.c", "-o", program,
            *[":".join(("-l", "libemm.a")) if flag == "-lemm" else flag for flag in flags.split()])
        assert "libemm" not in run("readelf", "-d", program), "the program needs libemm.so"
        said = run(program, EMM_PLUGIN="pool", EMM_PLUGIN_PATH=str(library / "emm"),
                   EMM_DRIVER=str(library / "emm/sim/libcuda.so.1"))
        assert said.endswith("done\n") and "plugin: pool" in said and "live bytes: 0" in said, said
        print("a program with libemm.a inside, on the plugin pool")


if __name__ == "__main__":
    main(sys.argv[1])
