#!/usr/bin/env python3
"""new_test.py MESON SOURCE BUILD PREFIX LIBDIR CC CXX SANITIZE: what `emm new` writes builds against an installed emm, and is
a plugin that meets its requirements; what has the name already stays as it is.
"""
import functools
import json
import pathlib
import shutil
import subprocess
import sys

from cmake_test import Project, cmakes, refused
from install_test import install, point_at
from out_of_tree import Workshop, clean_environment, expect, main, run

QUICK = ("table", "memory/")


def written(tool, workshop, name, *flags):
    said = json.loads(run([tool, "new", name, "--json", *flags], cwd=workshop.folder))
    folder = workshop.folder / name
    expect(said["folder"] == str(folder), f"expected {folder}, found {said['folder']}")
    found = sorted(path.name for path in folder.iterdir())
    expect(found == sorted(said["files"]), f"{folder} has {found}, and emm new told of {said['files']}")
    return folder


def told(tool, workshop, variable, *flags, **environment):
    """The value that the printed steps give the variable; "" if they give none."""
    said = run([tool, "new", "told", *flags], cwd=workshop.folder, env=clean_environment(**environment))
    shutil.rmtree(workshop.folder / "told")
    step = next((line for line in said.splitlines() if f"export {variable}=" in line), "true")
    return run(["sh", "-c", f'{step}; printf %s "${variable}"'], env=clean_environment())


def tells_where_emm_is(tool, workshop, variable, folder, *flags):
    found = told(tool, workshop, variable, *flags)
    expect(found == str(folder), f"expected the next steps to tell {variable}={folder}, found {found}")
    again = told(tool, workshop, variable, *flags, **{variable: found})
    expect(again == "", f"{variable} has {found}, and the next steps tell {again}")


def checked(tool, library, sanitized):
    expect(library.is_file(), f"{library} was not built")
    symbols = run(["nm", "-D", "--defined-only", library]).split()[2::3]
    expect(symbols == ["emm_plugin_entry_v1"], f"{library}: expected its entry alone, found {symbols}")
    environment = clean_environment(EMM_DRIVER="sim")
    name = library.name[len("libemm-"):-len(".so")]
    told = json.loads(run([tool, "info", library, "--json"], env=environment))["plugin"]["name"]
    expect(told == name, f"expected a plugin called {name}, found {told}")
    if not sanitized:
        filters = [word for text in QUICK for word in ("--filter", text)]
        report = json.loads(run([tool, "check", library, "--json", *filters], env=environment))
        expect(report["passed"] > 0 and report["failed"] == 0, f"{library}: {report}")


def checked_layer(tool, folder, name, sanitized):
    environment = clean_environment(EMM_DRIVER="sim", EMM_PLUGIN_PATH=str(folder))
    told = json.loads(run([tool, "info", f"{name}+pool", "--json"], env=environment))["plugin"]
    expect([layer["name"] for layer in told["layers"]] == [name] and told["name"] == "pool", f"found {told}")
    if not sanitized:
        report = json.loads(run([tool, "check", f"{name}+pool", "--json", "--filter", "layers/"], env=environment))
        expect(report["passed"] == 5 and report["failed"] == 0, f"{name}: {report}")


def keeps_what_has_the_name(tool, workshop):
    folder, file = workshop.folder / "taken", workshop.folder / "a-file"
    folder.mkdir()
    (folder / "mine.c").write_text("int x;")
    file.write_text("mine")
    (workshop.folder / "a-link").symlink_to("nowhere")
    for name in ("taken", "a-file", "a-link"):
        refused(lambda: run([tool, "new", name], cwd=workshop.folder),
                f"new: '{name}' exists already", "exit status 1")
    expect([path.name for path in folder.iterdir()] == ["mine.c"] and file.read_text() == "mine",
           "emm new changed what was there")
    refused(lambda: run([tool, "new", "../up"], cwd=workshop.folder), "found '../up'", "exit status 2")
    sealed = subprocess.run([tool, "new", "mine"], cwd="/proc", capture_output=True, text=True, check=False)
    expect(sealed.returncode == 1 and "cannot make the folder mine" in sealed.stderr, sealed.stderr)


def test(source, build, prefix, libdir, workshop):
    installed = (workshop.folder / "installed").resolve()
    shutil.move(install(workshop, build, prefix), installed)
    point_at(installed, libdir)
    tool = installed / "bin/emm"
    sanitized = "-Db_sanitize=none" not in workshop.settings
    pkg_config = installed / libdir / "pkgconfig"
    tells_where_emm_is(tool, workshop, "PKG_CONFIG_PATH", pkg_config)
    tells_where_emm_is(tool, workshop, "CMAKE_PREFIX_PATH", installed, "--cmake")
    environment = {**workshop.environment, "PKG_CONFIG_PATH": str(pkg_config)}
    for name, *flags in (("plain",), ("in-c", "--c", "--meson")):
        folder = written(tool, workshop, name, *flags)
        run(workshop.meson + ["setup", folder / "build", folder, *workshop.settings], env=environment)
        run(workshop.meson + ["compile", "-C", folder / "build"], env=environment)
        checked(tool, folder / f"build/libemm-{name}.so", sanitized)
    folder = written(tool, workshop, "my-layer", "--layer")
    run(workshop.meson + ["setup", folder / "build", folder, *workshop.settings], env=environment)
    run(workshop.meson + ["compile", "-C", folder / "build"], env=environment)
    checked_layer(tool, folder / "build", "my-layer", sanitized)
    for cmake in cmakes(source)[:1]:
        for name, *flags in (("by_cmake", "--cmake"), ("c-by-cmake", "--c", "--cmake")):
            project = Project(cmake, workshop, written(tool, workshop, name, *flags), f"copy-of-{name}")
            project.configure(f"-DCMAKE_PREFIX_PATH={installed}")
            checked(tool, project.make() / f"libemm-{name}.so", sanitized)
    keeps_what_has_the_name(tool, workshop)


if __name__ == "__main__":
    meson, source, build, prefix, libdir, cc, cxx, sanitize = sys.argv[1:]
    sys.exit(main(functools.partial(test, pathlib.Path(source), build, prefix, libdir),
                  Workshop(meson, cc, cxx, sanitize)))
