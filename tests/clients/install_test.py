#!/usr/bin/env python3
"""install_test.py MESON SOURCE BUILD PREFIX LIBDIR CC CXX SANITIZE TOOL PLUGINS

Installs emm, builds two applications and two plugins against it by pkg-config alone, moves the
installed tree, and runs each application with each plugin: nothing is built a second time.
"""
import functools
import json
import pathlib
import re
import shutil
import sys

from out_of_tree import Failure, Workshop, clean_environment, digest, expect, main, run


def install(workshop, build, prefix):
    staging = workshop.folder / "staging"
    run(workshop.meson + ["install", "-C", build, "--no-rebuild", "--destdir", staging])
    return staging / pathlib.Path(prefix).relative_to("/")


def check_documents(installed):
    """Files that the templates, plugin.h and `emm check` refer to lie beside the templates."""
    folder = installed / "share/emm"
    for name in ("README.md", "REQUIREMENTS.md"):
        expect((folder / name).is_file(), f"{folder / name} is not installed")
    expect("EMM-P-39" in (folder / "REQUIREMENTS.md").read_text(), "REQUIREMENTS.md numbers nothing")
    for link in re.findall(r"\]\(([^)#]+\.md)", (folder / "README.md").read_text()):
        expect((folder / link).is_file(), f"README.md refers to {folder / link}, which is not installed")


def point_at(installed, libdir):
    """With -Dpkgconfig.relocatable=false emm.pc names the prefix, and what is staged lies elsewhere."""
    emm_pc = installed / libdir / "pkgconfig" / "emm.pc"
    emm_pc.write_text(re.sub("^prefix=/.*", f"prefix={installed}", emm_pc.read_text()))


def built(workshop, source, installed, libdir):
    environment = {"PKG_CONFIG_PATH": str(installed / libdir / "pkgconfig")}
    build = functools.partial(workshop.build, environment=environment)
    # The suite's processes are too many and too slow with sanitizers.
    checked = functools.partial(build, test="-Db_sanitize=none" in workshop.settings)
    clients = [build(source / "tests/clients" / name) / name for name in ("client-c", "client-cpp")]
    templates = installed / "share/emm"
    plugins = {name: checked(templates / name) / f"libemm-{name}.so"
               for name in ("template-c", "template-cpp")}
    return clients, plugins, build(source / "tests/clients/client-ipc")


def served_by(output):
    facts = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
    return facts.get("plugin"), pathlib.Path(facts.get("path", ""))


def check_client(client, spec, name, path, environment):
    output = run([client], env={**environment, "EMM_PLUGIN": spec})
    expect(output.endswith("done\n"), f"{client.name} did not come to its end:\n{output}")
    found_name, found_path = served_by(output)
    expect(found_name == name, f"EMM_PLUGIN={spec}: expected {name} to serve, found {found_name}")
    expect(found_path == path, f"EMM_PLUGIN={spec}: expected {path}, found {found_path}")
    expect("live bytes: 0\n" in output, f"{client.name} on {name}: something stayed live\n{output}")


def check_info(tool, spec, name, path, environment):
    said = json.loads(run([tool, "info", "--json"], env={**environment, "EMM_PLUGIN": spec}))
    plugin = said["plugin"]
    expect(plugin["name"] == name, f"emm info: expected {name}, found {plugin['name']}")
    expect(pathlib.Path(plugin["path"]) == path, f"emm info: expected {path}, found {plugin}")
    expect(plugin["selected_by"] == "EMM_PLUGIN", f"emm info: not chosen by EMM_PLUGIN: {plugin}")
    expect(said["driver"]["simulated"] is True, f"emm info: not simulated: {said['driver']}")


def check_sharing(programs, environment):
    for spec in ("passthrough", "pool"):
        output = run([programs / "exporter", programs / "importer"],
                     env={**environment, "EMM_PLUGIN": spec})
        expect(output == "opened: 524288 bytes\ndone\n", f"sharing on {spec}: {output}")


def check_unset(client, environment):
    name, _ = served_by(run([client], env=environment))
    expect(name == "passthrough", f"without EMM_PLUGIN: expected passthrough, found {name}")


def check_refusal(client, environment):
    try:
        run([client], env={**environment, "EMM_PLUGIN": "no-such-plugin"})
    except Failure as failure:
        expect("no-such-plugin" in str(failure), f"the refusal does not name it: {failure}")
        return
    raise Failure("EMM_PLUGIN=no-such-plugin: the program ran, with some other plugin")


def check_python(moved, libdir, workshop):
    package = moved / libdir / "emm" / "python"
    # Python itself is built without sanitizers, and could not load a library with them.
    if package.is_dir() and "-Db_sanitize=none" in workshop.settings:
        found = run([sys.executable, "-c", "import emm; print(emm.library_path)"],
                    env=clean_environment(PYTHONPATH=str(package))).strip()
        expected = (moved / libdir / "libemm.so.1").resolve()
        expect(pathlib.Path(found) == expected, f"Python: expected {expected}, found {found}")


def test(source, build, prefix, libdir, tool, bundled, workshop):
    installed = install(workshop, build, prefix)
    point_at(installed, libdir)
    check_documents(installed)
    clients, templates, sharing = built(workshop, source, installed, libdir)
    digests = [digest(client) for client in clients]
    moved = (workshop.folder / "moved").resolve()
    shutil.move(installed, moved)
    environment = clean_environment(EMM_DRIVER="sim", LD_LIBRARY_PATH=str(moved / libdir))
    plugins = {name: moved / libdir / "emm" / f"libemm-{name}.so" for name in bundled}
    bounded = {"managed": "managed:max=1GiB"}  # without the limit, it has more than the device and does not run out
    specs = [(bounded.get(name, name), name, path) for name, path in plugins.items()]
    specs += [(str(path), name, path.resolve()) for name, path in templates.items()]
    for spec, name, path in specs:
        for client in clients:
            check_client(client, spec, name, path, environment)
        if tool:
            check_info(moved / "bin" / "emm", spec, name, path, environment)
    check_sharing(sharing, environment)
    check_unset(clients[0], environment)
    check_refusal(clients[0], environment)
    check_python(moved, libdir, workshop)
    expect(digests == [digest(client) for client in clients], "an application was built anew")
    print(f"{len(clients)} applications on {len(specs)} plugins, in a tree that was moved")


if __name__ == "__main__":
    meson, source, build, prefix, libdir, cc, cxx, sanitize, tool, bundled = sys.argv[1:]
    sys.exit(main(functools.partial(test, pathlib.Path(source), build, prefix, libdir,
                                    tool == "true", bundled.split(",")),
                  Workshop(meson, cc, cxx, sanitize)))
