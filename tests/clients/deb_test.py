#!/usr/bin/env python3
"""deb_test.py FOLDER: the Debian packages in FOLDER, unpacked side by side: what they hold works, and what they say fits."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ("libemm1", "libemm-dev", "emm-tools", "python3-emm")


def run(*command, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EMM_", "LD_", "PYTHON"))}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          env={**kept, **variables})
    assert done.returncode == 0, f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def field(package, name):
    return run("dpkg-deb", "--field", package, name).strip()


def packages_say_what_they_need(packages):
    version = field(packages["libemm1"], "Version")
    for name in ("libemm-dev", "emm-tools"):
        depends = field(packages[name], "Depends")
        assert f"libemm1 (= {version})" in depends, f"{name} depends on {depends}"
    assert "libc6" in field(packages["libemm1"], "Depends"), "libemm1 needs no libc6"
    assert not field(packages["libemm1"], "Depends").count("cuda"), "libemm1 depends on CUDA"


def symbols_have_their_versions(package, folder):
    run("dpkg-deb", "--control", package, folder)
    listed = (pathlib.Path(folder) / "symbols").read_text()
    assert re.search(r"^libemm\.so\.1 libemm1 #MINVER#", listed, re.M), listed
    for line in (" emm_memalloc@EMM_1 0.1.0", " emm_get_device_total@EMM_1_1 0.1.0"):
        assert f"{line}\n" in listed, f"symbols has no line '{line}':\n{listed}"


def what_they_hold_works(root):
    library = next(root.glob("usr/lib/*/libemm.so.1")).parent
    environment = {"EMM_DRIVER": "sim", "EMM_PLUGIN": "pool", "LD_LIBRARY_PATH": str(library)}
    said = run(root / "usr/bin/emm", "info", **environment)
    assert str(library / "emm/libemm-pool.so") in said and "SIMULATED" in said, said
    assert (root / "usr/share/man/man7/emm.7.gz").is_file(), "no package has emm(7)"
    said = run("/usr/bin/python3", "-c", "import emm; print(emm.plugin_info().name.decode())",
               PYTHONPATH=str(root / "usr/lib/python3/dist-packages"), EMM_LIBRARY=str(library / "libemm.so.1"), **environment)
    assert said == "pool\n", said
    flags = run("pkg-config", "--cflags", "--libs", "emm", PKG_CONFIG_PATH=str(library / "pkgconfig")).split()
    run("cc", "-std=c11", HERE / "client-c/client.c", "-o", root / "client", *flags)
    said = run(root / "client", **environment)
    assert said.endswith("done\n") and "plugin: pool" in said, said
    # -lemm would take libemm.so, in the same folder.
    flags = run("pkg-config", "--static", "--cflags", "--libs", "emm", PKG_CONFIG_PATH=str(library / "pkgconfig")).split()
    run("cc", "-std=c11", HERE / "client-c/client.c", "-o", root / "static-client",
        *["-l:libemm.a" if flag == "-lemm" else flag for flag in flags])
    for file in (root / "usr/bin/emm", library / "libemm-bridge.so.1", library / "emm/run/libemm-run.so"):
        assert "PATH" not in run("readelf", "-d", file).replace("LIBPATH", ""), f"{file} has a path of libraries"


def main(folder):
    packages = {file.name.partition("_")[0]: file for file in pathlib.Path(folder).glob("*.*deb")}
    assert set(packages) == set(PACKAGES), f"{folder} has the packages {sorted(packages)}"
    packages_say_what_they_need(packages)
    with tempfile.TemporaryDirectory(prefix="emm-deb-") as scratch:
        root = pathlib.Path(scratch).resolve() / "root"
        for package in packages.values():
            run("dpkg-deb", "--extract", package, root)
        symbols_have_their_versions(packages["libemm1"], pathlib.Path(scratch) / "control")
        what_they_hold_works(root)
    print("the packages", *PACKAGES, "hold what they say")


if __name__ == "__main__":
    main(*sys.argv[1:])
