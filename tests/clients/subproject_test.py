#!/usr/bin/env python3
"""subproject_test.py MESON SOURCE CC CXX [whole]: emm as a Meson subproject of a project.

Building all of it takes a minute of a core; without `whole`, what shows that the parts find each
other is built: the project's own file, which includes emm's headers, and a plugin.
"""
import functools
import pathlib
import shutil
import sys

from out_of_tree import Failure, Workshop, clean_environment, expect, main, run

# Fast to build; what is built is the library and its plugins.
SETTINGS = ["-Doptimization=0", "-Ddebug=false", "-Demm:tools=false", "-Demm:simcuda=false"]


PARTS = ["carrier.p/carrier.c.o", "subprojects/emm/plugins/passthrough/libemm-passthrough.so"]


def refuses_headers_that_are_not_there(workshop, carrier):
    """A folder for cuda.h that was named counts, also if another would do."""
    try:
        run(workshop.meson + ["setup", workshop.folder / "misled", carrier, *SETTINGS,
                              "-Demm:toolkit_include=/nonexistent"], env=workshop.environment)
    except Failure as failure:
        expect("-Dtoolkit_include=/nonexistent: there is no cuda.h" in str(failure), str(failure))
    else:
        raise Failure("expected /nonexistent to be refused as the folder of cuda.h")


def test(source, whole, workshop):
    carrier = workshop.folder / "carrier"
    shutil.copytree(source / "tests/clients/subproject", carrier)
    (carrier / "subprojects").mkdir()
    (carrier / "subprojects" / "emm").symlink_to(source)
    build = carrier / "build"
    refuses_headers_that_are_not_there(workshop, carrier)
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
