import pathlib

from spack_repo.builtin.build_systems.meson import MesonPackage

from spack.package import *


class Emm(MesonPackage):
    """A host for CUDA memory allocators that live in shared libraries: libemm, the command emm,
    which starts any CUDA program on an allocator, and the Python package emm."""

    # The clone that this file lies in. `spack dev-build` builds sources that are no clone.
    git = pathlib.Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0")

    version("main", branch="main")

    variant("python", default=True, description="Install the Python package emm")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    # Headers alone are used of these: no CUDA library is linked, the driver is opened at run time.
    depends_on("cuda@12:", type="build")
    depends_on("cli11@2.3:", type="build")
    depends_on("fmt@9.1.0", type="build")
    depends_on("nlohmann-json@3.11:", type="build")
    depends_on("spdlog@1.10:1.12", type="build")

    depends_on("python@3.9:", type="build")
    extends("python", when="+python")

    requires("platform=linux")
    requires("target=x86_64:", "target=aarch64:", policy="one_of")
    conflicts("%gcc@:11", msg="emm is C++20: GCC 12 or later")
    conflicts("%llvm@:13", msg="emm is C++20: clang 14 or later")

    def meson_args(self):
        args = [
            "-Dtests=false",
            "-Dunity=on",
            "-Dunity_size=8",
            f"-Dtoolkit_include={self.spec['cuda'].prefix.include}",
        ]
        if self.spec.satisfies("+python"):
            return [*args, f"-Dpythondir={python_platlib}"]
        return [*args, "-Dpython=false"]

    def test_plugins_serve(self):
        """each bundled plugin is found, and serves the simulated driver"""
        emm = which(self.prefix.bin.emm)
        emm.add_default_env("EMM_DRIVER", "sim")
        for plugin in ("passthrough", "async", "pool"):
            with test_part(self, f"test_plugins_serve_{plugin}", purpose=f"emm info {plugin}"):
                emm("info", plugin)
