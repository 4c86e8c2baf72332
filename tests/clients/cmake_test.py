#!/usr/bin/env python3
"""cmake_test.py MESON SOURCE BUILD PREFIX LIBDIR CC CXX SANITIZE TOOL [whole]: emm in CMake projects, with each CMake here:
the system's, and the one that CI fetches into .cache/cmake.

A client and both templates find an installed emm that was moved. FetchContent and add_subdirectory are configured, and
build a plugin, which needs headers alone; Meson, as one of them configures it, tells what it would build. With `whole`
they build emm, run on it and install it.
"""
import functools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from install_test import check_client, install
from out_of_tree import Failure, Workshop, clean_environment, expect, main, run

SKIPPED = 77
QUICKLY = "-DEMM_MESON_OPTIONS=-Doptimization=0;-Ddebug=false"


def cmakes(source):
    found = [shutil.which("cmake"), source / ".cache/cmake/bin/cmake"]
    return [pathlib.Path(path) for path in found if path and pathlib.Path(path).is_file()]


def compiler(variable, command):
    """CMake wants a compiler, and before it a launcher, where there is one."""
    *launcher, last = shlex.split(command)
    return [f"-DCMAKE_{variable}_COMPILER={last}"] + [f"-DCMAKE_{variable}_COMPILER_LAUNCHER={';'.join(launcher)}"
                                                     for _ in launcher[:1]]


class Project:
    def __init__(self, cmake, workshop, folder, name):
        self.cmake, self.workshop, self.source = cmake, workshop, workshop.folder / name
        self.build = self.source / "build"
        shutil.copytree(folder, self.source)

    def configure(self, *settings):
        environment = self.workshop.environment
        sanitize = self.workshop.settings[0].partition("=")[2]
        flags = [f"-DCMAKE_{name}_FLAGS=-fsanitize={sanitize}" for name in ("C", "CXX") if sanitize != "none"]
        return run([self.cmake, "-S", self.source, "-B", self.build, *compiler("C", environment["CC"]),
                    *compiler("CXX", environment["CXX"]), *flags, *settings], env=clean_environment())

    def make(self, *targets):
        run([self.cmake, "--build", self.build, *(["--target", *targets] if targets else [])], env=clean_environment())
        return self.build


def client_project(cmake, workshop, source, name):
    project = Project(cmake, workshop, source / "tests/clients/cmake", name)
    shutil.copy(source / "tests/clients/client-c/client.c", project.source)
    shutil.copy(source / "plugins/template-cpp/plugin.cpp", project.source)
    return project


def check_exports(library):
    symbols = run(["nm", "-D", "--defined-only", library]).split()[2::3]
    expect(symbols == ["emm_plugin_entry_v1"], f"{library}: expected its entry alone, found {symbols}")


def refused(what, *words):
    """Runs `what`, which must fail and name each of `words`."""
    try:
        what()
    except Failure as failure:
        for word in words:
            expect(word in re.sub(r"\s+", " ", str(failure)), f"the refusal does not say '{word}': {failure}")
        return
    raise Failure(f"expected a refusal that says {words}, and there was none")


def check_versions(cmake, folder, version):
    """The answers of the version file to versions that programs may ask for."""
    major, minor = version.split(".")[:2]
    expected = {"": True, version: True, f"{major}.{minor}": True, f"{int(major) + 1}": False,
                f"{major}.{int(minor) + 1}": False, f"{major}.{minor}.999": False}
    for wanted, fits in expected.items():
        script = folder.parent / "ask.cmake"
        script.write_text(f'set(PACKAGE_FIND_VERSION "{wanted}")\ninclude({folder}/emm-config-version.cmake)\n'
                          'message("${PACKAGE_VERSION_COMPATIBLE}")\n')
        said = subprocess.run([cmake, "-P", script], capture_output=True, text=True, check=True).stderr.strip()
        expect((said == "TRUE") == fits, f"emm {version} for a program that wants '{wanted}': {said}")


def package(cmake, workshop, source, moved, libdir):
    where = f"-DCMAKE_PREFIX_PATH={moved}"
    environment = clean_environment(EMM_DRIVER="sim")
    label = str(cmake).strip("/").replace("/", "-")
    client = client_project(cmake, workshop, source, f"package-{label}")
    client.configure(where)
    built = client.make()
    pool = moved / libdir / "emm/libemm-pool.so"
    check_client(built / "client", "pool", "pool", pool, environment)
    ours = built / "libemm-template-cpp.so"
    check_client(built / "client", str(ours), "template-cpp", ours, environment)
    check_exports(ours)


def template(cmake, workshop, folder, moved, tool):
    project = Project(cmake, workshop, folder, folder.name)
    project.configure(f"-DCMAKE_PREFIX_PATH={moved}")
    check_exports(project.make() / f"libemm-{folder.name}.so")
    # The suite's processes are too many and too slow with sanitizers.
    if tool and "-Db_sanitize=none" in workshop.settings:
        run([cmake.parent / "ctest", "--test-dir", project.build, "--no-tests=error"], env=clean_environment())


def refusals(cmake, workshop, source, moved, libdir):
    where = f"-DCMAKE_PREFIX_PATH={moved}"
    lists = "cmake_minimum_required(VERSION 3.25)\nproject(bad LANGUAGES C)\nfind_package(emm {} REQUIRED)\n{}\n"
    project = client_project(cmake, workshop, source, "refused")
    for version, line, words in (
            ("", "emm_add_plugin(a/b plugin.c)", ["expected a name of a-z", "found 'a/b'"]),
            ("", "emm_add_plugin(empty)", ["emm_add_plugin(empty): expected source files, found none"]),
            ("77", "", ["compatible with requested version", "77"])):
        (project.source / "CMakeLists.txt").write_text(lists.format(version, line))
        refused(lambda: project.configure(where), *words)
    library = moved / libdir / "libemm.so.1"
    library.rename(library.with_suffix(".away"))
    (project.source / "CMakeLists.txt").write_text(lists.format("", ""))
    refused(lambda: project.configure(where), f"expected the library {library}, which is not there")
    library.with_suffix(".away").rename(library)


def from_source(cmake, workshop, source, way):
    project = client_project(cmake, workshop, source, way)
    project.configure(f"-DEMM_FROM={way}", f"-DEMM_SOURCE={source}", "-DCMAKE_INSTALL_LIBDIR=lib", QUICKLY,
                      "-DCMAKE_BUILD_TYPE=Debug")
    return project


def introspect(project, workshop, what):
    project.make("emm_build-configure")
    return json.loads(run(workshop.meson + ["introspect", project.build / "emm/build", what]))


def configures_what_was_asked_for(project, workshop):
    names = {target["name"] for target in introspect(project, workshop, "--targets")}
    wanted = {"emm", "emm-passthrough", "emm-pool", "emm-async", "emm-managed", "emm-pluggable", "cuda"}
    expect(wanted <= names, f"not built in a CMake project: {wanted - names}")
    unasked = names & {"emm-tool", "emm-run", "emm-bridge", "catch2-main"}
    expect(not unasked, f"built in a CMake project unasked: {unasked}")
    options = {option["name"]: option["value"] for option in introspect(project, workshop, "--buildoptions")}
    expect(options["unity"] == "on", f"in a CMake project emm is compiled with unity={options['unity']}")
    project.configure("-DEMM_TOOL=ON")
    names = {target["name"] for target in introspect(project, workshop, "--targets")}
    expect("emm-tool" in names, "an option that changes after the first build does not reach Meson")
    debug = [option["value"] for option in introspect(project, workshop, "--buildoptions") if option["name"] == "debug"]
    expect(debug == [False], f"-Ddebug=false is {debug} once the folder was configured again")


def whole_from_source(cmake, workshop, source):
    project = from_source(cmake, workshop, source, "fetch")
    built = project.make()
    environment = clean_environment(EMM_DRIVER="sim")
    ours = built / "libemm-template-cpp.so"
    check_client(built / "client", str(ours), "template-cpp", ours, environment)
    installed = project.source / "installed"
    run([cmake, "--install", built, "--prefix", installed])
    shutil.rmtree(built) # the installed files need nothing of it
    pool = installed / "lib/emm/libemm-pool.so"
    check_client(installed / "bin/client", "pool", "pool", pool, environment)


def test(source, build, prefix, libdir, tool, whole, found, workshop):
    if whole:
        whole_from_source(found[0], workshop, source)
        return
    moved = (workshop.folder / "moved").resolve()
    shutil.move(install(workshop, build, prefix), moved)
    for cmake in found:
        package(cmake, workshop, source, moved, libdir)
    template(found[0], workshop, moved / "share/emm/template-c", moved, tool)
    template(found[-1], workshop, moved / "share/emm/template-cpp", moved, tool)
    sources = {way: from_source(cmake, workshop, source, way)
               for cmake, way in ((found[0], "subdirectory"), (found[-1], "fetch"))}
    for project in sources.values():
        check_exports(project.make("template-cpp") / "libemm-template-cpp.so")
    configures_what_was_asked_for(sources["subdirectory"], workshop)
    version = re.search(r'PACKAGE_VERSION "([\d.]+)"', (moved / libdir / "cmake/emm/emm-config-version.cmake").read_text())
    check_versions(found[0], moved / libdir / "cmake/emm", version[1])
    refusals(found[0], workshop, source, moved, libdir)
    print("with", ", ".join(run([cmake, "--version"]).splitlines()[0] for cmake in found))


def begin(meson, source, build, prefix, libdir, cc, cxx, sanitize, tool, *how):
    source = pathlib.Path(source)
    found = cmakes(source)
    if not found:
        print("skipped: there is no cmake here")
        return SKIPPED
    return main(functools.partial(test, source, build, prefix, libdir, tool == "true", how == ("whole",), found),
                Workshop(meson, cc, cxx, sanitize))


if __name__ == "__main__":
    sys.exit(begin(*sys.argv[1:]))
