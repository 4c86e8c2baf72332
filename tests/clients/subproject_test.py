#!/usr/bin/env python3
"""subproject_test.py MESON SOURCE CC CXX [whole]: emm as a Meson subproject of a project.

Building all of it takes a minute of a core; without `whole` a plugin is built, and Ninja is asked what the program
waits for.
"""
import functools
import hashlib
import json
import pathlib
import re
import shutil
import sys
import tarfile

from out_of_tree import Failure, Workshop, clean_environment, expect, main, run

SETTINGS = ["-Doptimization=0", "-Ddebug=false", "-Dunity=subprojects", "-Dunity_size=8"] # fast to build
PLUGIN = "subprojects/emm/plugins/{0}/libemm-{0}.so"
# Libraries that emm can fetch where a system has none: the wrap, and a header of it.
WRAPPED = {"fmt": "fmt/core.h", "spdlog": "spdlog/spdlog.h", "cli11": "CLI/CLI.hpp",
           "nlohmann_json": "nlohmann/json.hpp"}
NAMES = "fmt,spdlog,CLI11,nlohmann_json"


def project(workshop, source, name):
    carrier = workshop.folder / name
    shutil.copytree(source / "tests/clients/subproject", carrier)
    (carrier / "subprojects").mkdir()
    (carrier / "subprojects" / "emm").symlink_to(source)
    return carrier


def setup(workshop, carrier, name, *settings):
    build = carrier / name
    run(workshop.meson + ["setup", build, carrier, *SETTINGS, *settings], env=workshop.environment)
    return build


def refused(what, sentence):
    try:
        what()
    except Failure as failure:
        expect(sentence in str(failure), str(failure))
    else:
        raise Failure(f"expected a refusal that says: {sentence}")


def has_what_programs_need_and_no_more(workshop, build):
    listing = json.loads(run(workshop.meson + ["introspect", "--targets", build]))
    names = {target["name"] for target in listing if target["build_by_default"]}
    expect({"emm", "emm-pool", "emm-async", "emm-managed", "emm-passthrough", "emm-pluggable", "carrier"} <= names, f"built by default: {names}")
    unasked = names & {"emm-tool", "emm-run", "emm-bridge", "cuda", "catch2-main"}
    expect(not unasked, f"built by default in a subproject: {unasked}")
    waits_for = run(["ninja", "-C", build, "-t", "inputs", "carrier"]).split()
    for plugin in ("passthrough", "pool", "async", "managed", "pluggable"):
        expect(PLUGIN.format(plugin) in waits_for, f"the program does not wait for the plugin {plugin}: {waits_for}")


def include_folder(header):
    for folder in ("/usr/include", "/usr/local/include"):
        if (pathlib.Path(folder) / header).exists():
            return pathlib.Path(folder)
    return None


def pack(source, subprojects, name):
    """The system's headers as the archive that a wrap of emm names, so that Meson has nothing to fetch."""
    folder = include_folder(WRAPPED[name])
    text = (source / "tools/subprojects" / f"{name}.wrap").read_text()
    facts = dict(re.findall(r"^(\w+) = (.*)$", text, re.M))
    archive = subprojects / "packagecache" / facts["source_filename"]
    archive.parent.mkdir(exist_ok=True)
    top = WRAPPED[name].split("/")[0]
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / top, f"{facts['directory']}/include/{top}")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (subprojects / f"{name}.wrap").write_text(text.replace(facts["source_hash"], digest))


def wraps_take_the_place_of_libraries(workshop, source):
    carrier = project(workshop, source, "bare")
    subprojects = carrier / "subprojects"
    refused(lambda: setup(workshop, carrier, "offline", f"--force-fallback-for={NAMES}", "--wrap-mode=nodownload"),
            "Using subprojects/emm/tools/subprojects/fmt.wrap")
    if not all(map(include_folder, WRAPPED.values())):
        print("the wraps are not built: their headers are not in /usr/include")
        return
    shutil.copytree(source / "tools/subprojects/packagefiles", subprojects / "packagefiles")
    for name in WRAPPED:
        pack(source, subprojects, name)
    build = setup(workshop, carrier, "wrapped", f"--force-fallback-for={NAMES}", "-Demm:tools=true", "-Dunity=off")
    run(["ninja", "-C", build, "subprojects/emm/lib/libemm-internal.a.p/observe_log.cpp.o"], env=workshop.environment)
    commands = (build / "compile_commands.json").read_text()
    for name in ("fmt-", "spdlog-", "CLI11-", "json-"):
        expect(re.search(rf"-isystem\S*/{name}[\d.]+/include", commands), f"no file is compiled with {name}'s headers")


def test(source, whole, workshop):
    carrier = project(workshop, source, "carrier")
    # A named folder for cuda.h counts, even if another folder would do.
    refused(lambda: setup(workshop, carrier, "misled", "-Demm:toolkit_include=/nonexistent"),
            "-Dtoolkit_include=/nonexistent: there is no cuda.h")
    if not whole:
        build = setup(workshop, carrier, "build")
        has_what_programs_need_and_no_more(workshop, build)
        run(["ninja", "-C", build, PLUGIN.format("passthrough")], env=workshop.environment)
        wraps_take_the_place_of_libraries(workshop, source)
        return
    build = setup(workshop, carrier, "build", "-Demm:simcuda=true")
    for name in ("carrier", "carrier-by-name"):
        run(["ninja", "-C", build, name], env=workshop.environment)
        output = run([build / name], env=clean_environment())
        expect(output.endswith(" with passthrough\n"), f"expected passthrough to serve, found: {output}")
    output = run([build / "carrier", "allocate"], env=clean_environment(EMM_DRIVER="sim", EMM_PLUGIN="pool"))
    expect(output.endswith(" with pool\n"), f"expected pool to serve, found: {output}")


if __name__ == "__main__":
    meson, source, cc, cxx, *how = sys.argv[1:]
    sys.exit(main(functools.partial(test, pathlib.Path(source), how == ["whole"]),
                  Workshop(meson, cc, cxx, "none")))
