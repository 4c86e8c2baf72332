"""The libraries of a wheel: wherever a C++ program is built, it needs glibc 2.28 at most, and runs as usual."""
import ast
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LINK, OF_C, OF_CPP = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)

# One of each kind: moved by 2.34, new since, and the start of a program with its constructors.
PROGRAM = r"""
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

static const std::string made = "constructed";

// Whether nothing ends the wait but its time, and not long after it.
static bool waits() {
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_lock lock(mutex);
    const auto begin = std::chrono::steady_clock::now();
    const bool came = changed.wait_for(lock, std::chrono::milliseconds(30), [] { return false; });
    const auto lasted = std::chrono::steady_clock::now() - begin;
    return !came && lasted >= std::chrono::milliseconds(30) && lasted < std::chrono::seconds(20);
}

int main(int, char **arguments) {
    struct stat file, link, open, in;
    bool good = made == "constructed" && waits();
    std::thread([&] { good = good && gettid() != getpid(); }).join();
    good = good && stat(arguments[1], &file) == 0 && lstat(arguments[1], &link) == 0 && S_ISLNK(link.st_mode);
    good = good && fstat(0, &open) == 0 && fstatat(0, arguments[1], &in, 0) == 0 && in.st_ino == file.st_ino;
    int number = 0;
    good = good && file.st_size == 3 && strtol("0x1f", nullptr, 0) == 31 && sscanf("7", "%d", &number) == 1 && number == 7;
    good = good && dlsym(RTLD_DEFAULT, "cuInit") == nullptr && *std::make_shared<int>(5) == 5;
    puts(good ? "good" : "bad");
    return good ? 0 : 1;
}
"""
# As where glibc has no timed wait by a clock.
WITHOUT = 'extern "C" void *__wrap_dlsym(void *, const char *) { return nullptr; }\n'


class Linked(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        said = self.run_(sys.executable, LINK, OF_C, self.folder / "parts")
        self.for_c, self.for_cpp = (ast.literal_eval(line) for line in said.splitlines())
        (self.folder / "file").write_text("abc")
        (self.folder / "link").symlink_to("file")

    def run_(self, *command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def build(self, name, text, *arguments):
        source = self.folder / f"{name}.cpp"
        source.write_text(text)
        self.run_(OF_CPP, "-std=c++20", "-O1", "-pthread", "-static-libstdc++", source, "-o", self.folder / name, *self.for_cpp,
                  *arguments)
        return self.folder / name

    def latest(self, program):
        listing = self.run_("objdump", "-T", program)
        return max((tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_(2[.\d]+)", listing)))

    def test_a_program_asks_for_no_later_glibc_and_runs(self):
        program = self.build("program", PROGRAM)
        self.assertLessEqual(self.latest(program), (2, 28))
        self.assertEqual(self.run_(program, self.folder / "link"), "good\n")

    def test_a_wait_ends_in_time_where_glibc_has_none_by_a_clock(self):
        program = self.build("program", PROGRAM + WITHOUT, "-Wl,--wrap=dlsym")
        self.assertEqual(self.run_(program, self.folder / "link"), "good\n")

    def test_a_library_of_c_needs_the_parts_of_glibc_alone(self):
        source, library = self.folder / "library.c", self.folder / "library.so"
        source.write_text('#include <dlfcn.h>\nvoid *emm_find(const char *name) { return dlsym(RTLD_DEFAULT, name); }\n')
        self.run_(OF_C, "-shared", "-fPIC", source, "-o", library, *self.for_c)
        self.assertLessEqual(self.latest(library), (2, 28))
        exported = self.run_("nm", "-D", "--defined-only", library).split()
        self.assertEqual([name for name in exported[2::3] if not name.startswith("GLIBC")], ["emm_find"])


if __name__ == "__main__":
    if not all(map(shutil.which, ("objdump", "nm"))):
        print("skipped: there is no objdump to list symbols with")
        sys.exit(77)
    unittest.main()
