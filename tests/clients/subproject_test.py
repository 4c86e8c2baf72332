#!/usr/bin/env python3
"""subproject_test.py MESON SOURCE CC CXX [whole]: emm as a Meson subproject of a project.

Building all of it takes a minute of a core; without `whole`, what shows that the parts find each
other is built: the project's own file, which includes emm's headers, and a plugin.
"""
import functools
import pathlib
import shutil
import sys

from out_of_tree import Workshop, clean_environment, expect, main, run

# Fast to build; what is built is the library and its plugins.
SETTINGS = ["-Doptimization=0", "-Ddebug=false", "-Demm:tools=false", "-Demm:simcuda=false"]


PARTS = ["carrier.p/carrier.c.o", "subprojects/emm/plugins/passthrough/libemm-passthrough.so"]


def test(source, whole, workshop):
    carrier = workshop.folder / "carrier"
    shutil.copytree(source / "tests/clients/subproject", carrier)
    (carrier / "subprojects").mkdir()
    (carrier / "subprojects" / "emm").symlink_to(source)
    build = carrier / "build"
    run(workshop.meson + ["setup", build, carrier, *SETTINGS], env=workshop.environment)
    if not whole:
        run(["ninja", "-C", build, *PARTS], env=workshop.environment)
        return
    run(workshop.meson + ["compile", "-C", build], env=workshop.environment)
    output = run([build / "carrier"], env=clean_environment())
    expect(output.endswith(" with passthrough\n"), f"expected passthrough to serve, found: {output}")


if __name__ == "__main__":
    meson, source, cc, cxx, *how = sys.argv[1:]
    sys.exit(main(functools.partial(test, pathlib.Path(source), how == ["whole"]),
                  Workshop(meson, cc, cxx, "none")))
