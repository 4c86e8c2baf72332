#!/usr/bin/env python3
"""driver_places.py WHEEL: `emm run` finds the driver wherever a system has it.

As root, in an overlay of this system, which takes up what is put into /usr and /etc. In each place the simulated driver stands for
NVIDIA's. A program runs there alone and under `emm run`: both must load the same file, as the dynamic linker of that system decides.
"""
import contextlib
import ctypes
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from wheel_test import PROGRAM, Failure, Installed, expect

SKIP = 77
HERE = pathlib.Path(__file__).resolve().parent
MULTIARCH = f"/usr/lib/{os.uname().machine}-linux-gnu"
DRIVER = "libcuda.so.580.65.06"
NAME = "libcuda.so.1"
# The driver that the program got. The interposer has the same name.
TELL = """
maps = [line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line]
print("driver:", *sorted({path for path in maps if "/emm/run/" not in path}))
"""

# $0 is an empty folder, $1 this one, $2 the wheel, $3 Python.
ENTER = """
mount -t tmpfs tmpfs "$0" && mkdir "$0/upper" "$0/work" "$0/root" &&
    mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root" &&
    mount --rbind /proc "$0/root/proc" && mount --rbind /dev "$0/root/dev" || exit 77
mkdir "$0/root/emm-test" && cp -r "$1" "$2" "$0/root/emm-test" &&
    exec chroot "$0/root" "$3" "/emm-test/${1##*/}/driver_places.py" "/emm-test/${2##*/}" inside
"""


class System:
    """Files that a test puts into this system. The test removes all of them again."""

    def __init__(self, installed):
        self.installed = installed
        self.made = []

    def make(self, path):
        path = pathlib.Path(path)
        for folder in reversed(path.parents):
            if not folder.exists():
                folder.mkdir()
                self.made.append(folder)
        expect(not os.path.lexists(path), f"{path} is there already: this system has a driver")
        self.made.append(path)
        return path

    def driver(self, folder):
        shutil.copy(self.installed.native / "lib/emm/sim" / NAME, self.make(f"{folder}/{DRIVER}"))
        self.link(f"{folder}/{NAME}", DRIVER)
        return str(pathlib.Path(folder, DRIVER).resolve())

    def driver_of_32_bits(self, folder):
        header = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + struct.pack("<HHI", 3, 3, 1)
        self.make(f"{folder}/{NAME}").write_bytes(header.ljust(4096, b"\0"))

    def link(self, path, target):
        self.make(path).symlink_to(target)

    def configure_linker(self, name, *folders):
        self.make(f"/etc/ld.so.conf.d/{name}").write_text("".join(f"{folder}\n" for folder in folders))

    def update_cache(self):
        subprocess.run(["/sbin/ldconfig"], check=True)

    def clear(self):
        for path in reversed(self.made):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        self.made.clear()
        self.update_cache()


def package_of_debian(system):
    """Ubuntu's and NVIDIA's packages for Debian and Ubuntu."""
    expected = system.driver(MULTIARCH)
    system.update_cache()
    return expected, {}


def alternatives_of_debian(system):
    """Debian's own packages: the name is a link to a link."""
    expected = system.driver(f"{MULTIARCH}/nvidia/current")
    system.link("/etc/alternatives/emm-test-libcuda", f"{MULTIARCH}/nvidia/current/{NAME}")
    system.link(f"{MULTIARCH}/{NAME}", "/etc/alternatives/emm-test-libcuda")
    system.update_cache()
    return expected, {}


def folders_of_red_hat(system):
    """/usr/lib64, with the driver of 32 bits in /usr/lib."""
    system.driver_of_32_bits("/usr/lib")
    expected = system.driver("/usr/lib64")
    system.configure_linker("emm-test.conf", "/usr/lib64")
    system.update_cache()
    return expected, {}


def container_without_a_new_cache(system):
    """The container runtime mounts the driver into an image whose cache was written before."""
    return system.driver(MULTIARCH), {}


def system_without_a_cache(system):
    expected = system.driver(MULTIARCH)
    pathlib.Path("/etc/ld.so.cache").unlink()
    return expected, {}


def windows_subsystem(system):
    expected = system.driver("/usr/lib/wsl/lib")
    system.configure_linker("ld.wsl.conf", "/usr/lib/wsl/lib")
    system.update_cache()
    return expected, {}


def nvidia_images_by_variable(system):
    """NVIDIA's images set the variable; the first folder is that of 32 bits."""
    system.driver_of_32_bits("/usr/local/nvidia/lib")
    expected = system.driver("/usr/local/nvidia/lib64")
    return expected, {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"}


def nvidia_images_by_cache(system):
    system.driver_of_32_bits("/usr/local/nvidia/lib")
    expected = system.driver("/usr/local/nvidia/lib64")
    system.configure_linker("nvidia.conf", "/usr/local/nvidia/lib", "/usr/local/nvidia/lib64")
    system.update_cache()
    return expected, {}


def compatibility_package(system):
    """CUDA's package for older drivers comes before the system's driver."""
    system.driver(MULTIARCH)
    expected = system.driver("/usr/local/cuda/compat")
    system.update_cache()
    return expected, {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}


PLACES = (package_of_debian, alternatives_of_debian, folders_of_red_hat, container_without_a_new_cache, system_without_a_cache,
          windows_subsystem, nvidia_images_by_variable, nvidia_images_by_cache, compatibility_package)


def emm_run_finds_what_the_program_finds(installed, place, program):
    system = System(installed)
    with contextlib.ExitStack() as stack:
        stack.callback(system.clear)
        expected, variables = place(system)
        command = [installed.bin / "python", program, NAME]
        alone = installed.run(*command, EMM_DRIVER="", **variables)
        expect(alone == f"done\ndriver: {expected}\n", f"the program alone: {alone}")
        log = program.with_suffix(".csv")
        said = installed.emm("run", "--plugin", "pool", "--record", log, "--", *command, EMM_DRIVER="", **variables)
        expect(said == alone, f"expected {alone}, found {said}")
        expect("1048576" in log.read_text(), "no allocation went to the plugin")


def without_a_driver_emm_run_says_so(installed, program):
    try:
        installed.emm("run", "--plugin", "pool", "--", installed.bin / "python", program, NAME, EMM_DRIVER="")
    except Failure as failure:
        expect("the system has no libcuda.so.1" in str(failure), str(failure))
    else:
        raise Failure("a program ran although this system has no driver")


def has_driver():
    try:
        ctypes.CDLL(NAME)
    except OSError:
        return False
    return True


def try_places(wheel):
    with tempfile.TemporaryDirectory(prefix="emm-driver-") as folder:
        folder = pathlib.Path(folder).resolve()
        program = folder / "program.py"
        program.write_text(PROGRAM + TELL)
        where = "without a driver"
        try:
            installed = Installed(wheel, folder)
            without_a_driver_emm_run_says_so(installed, program)
            for place in PLACES:
                where = place.__name__
                emm_run_finds_what_the_program_finds(installed, place, program)
        except Failure as failure:
            print(f"{where}: {failure}")
            return 1
    print(f"emm run finds the driver in {len(PLACES)} places")
    return 0


def try_in_an_overlay(wheel):
    if has_driver():
        print("skipped: this system has a driver")
        return SKIP
    with tempfile.TemporaryDirectory(prefix="emm-overlay-") as folder:
        done = subprocess.run(["unshare", "--mount", "sh", "-c", ENTER, folder, HERE, wheel, sys.executable], check=False)
    if done.returncode == SKIP:
        print("skipped: no overlay of this system can be mounted")
    return done.returncode


def main(wheel, inside=None):
    wheel = pathlib.Path(wheel).resolve()
    if inside:
        return try_places(wheel)
    if os.getuid() != 0 or not shutil.which("unshare"):
        print("skipped: an overlay of this system takes root and unshare")
        return SKIP
    return try_in_an_overlay(wheel)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
