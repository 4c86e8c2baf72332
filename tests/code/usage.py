#!/usr/bin/env python3
"""usage.py ROOT: the scripts in tools/ say how they are used, and then set nothing up."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(sys.argv.pop(1), "tools")


def run(tool, *arguments, **settings):
    return subprocess.run([os.path.join(TOOLS, tool), *arguments], capture_output=True, text=True,
                          check=False, timeout=60, **settings)


class Usage(unittest.TestCase):
    def test_who_asks_is_told_how_a_tool_is_used_and_no_more(self):
        for tool in ("quickstart", "test", "fuzz", "coverage", "mutate", "wheel", "deb", "cuda-headers"):
            for wish in ("--help", "-h"):
                done = run(tool, wish)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.startswith(f"usage: tools/{tool}"), done.stdout)
                self.assertNotIn("looking for", done.stdout)

    def test_what_a_tool_does_not_take_is_wrong_usage(self):
        for tool, *words in (("quickstart", "--fast"), ("mutate", "pick"), ("wheel", "one", "two"), ("wheel", "--fast"), ("deb", "--fast"),
                              ("cuda-headers", "13")):
            done = run(tool, *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"usage: tools/{tool}", done.stderr)


class Folders(unittest.TestCase):
    # For setup.sh, with only the tools that every system has.
    SETUP = '''root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd); logs=$root
say() { :; }; stop() { echo "$*" >&2; exit 1; }; usage_if_asked() { :; }; set_up() { :; }; install_missing() { :; }
build() { mkdir -p "$1"; }; logged() { :; }; cuda_headers() { :; }
'''

    def test_what_a_folder_has_already_is_not_removed(self):
        for tool in ("deb", "wheel"):
            with self.subTest(tool), tempfile.TemporaryDirectory() as root:
                stubs = {"tools/setup.sh": self.SETUP, "tools/debian/changelog": "emm (1-1)", "meson.build": "  version: '1',",
                         "tools/python/wheel/glibc/link.py": "print(); print()", ".cache/wheel/tools/bin/auditwheel": ""}
                kept = [f"mine/{name}" for name in ("own", "dist/own", "wheel/own")]
                for name, text in {**stubs, **dict.fromkeys(kept, "own")}.items():
                    os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                    with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                        file.write(text)
                os.chmod(os.path.join(root, ".cache/wheel/tools/bin/auditwheel"), 0o755)
                shutil.copy(os.path.join(TOOLS, tool), os.path.join(root, "tools"))
                done = subprocess.run([os.path.join(root, "tools", tool), os.path.join(root, "mine")], capture_output=True,
                                      text=True, check=False, timeout=60)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("expected a folder that is new or empty" if tool == "deb" else "expected --prefix=/usr",
                              done.stderr)
                self.assertEqual([name for name in kept if not os.path.exists(os.path.join(root, name))], [])


class Names(unittest.TestCase):
    """tools/test, with stubs for what sets up and for Meson."""
    SETUP = Folders.SETUP + """say() { printf '%s\\n' "$@"; }; set_up() { say looking; }
configure() { say configuring; }; compile() { :; }
fetch_cccl_headers() { say 'fetch cccl'; }; fetch_cuda_runtimes() { say 'fetch runtimes'; }; fetch_rmm() { say 'fetch rmm'; }
"""
    TESTS = [{"name": "pool-eager", "cmd": ["pool"], "depends": []},
             {"name": "lookups", "cmd": ["python3", "/root/.cache/runtime/cuda-13"], "depends": []},
             {"name": "the plugin rmm", "cmd": ["python3", "/root/.cache", "c++"], "depends": []},
             {"name": "resources", "cmd": ["python3", "/root/.cache/cccl/cu12"], "depends": []}]
    MESON = """#!/usr/bin/env bash
echo "$*" >>asked
case $* in
*--tests) cat tests.json ;;
*--targets) echo '[]' ;;
*--list*) [ -n "$name" ] && echo "emm:unit+pool / $name" || echo "No suitable tests defined." ;;
*) mkdir -p build/meson-logs; echo "{\\"name\\": \\"emm:unit+pool / $name\\", \\"result\\": \\"OK\\"}" >build/meson-logs/testlog.json ;;
esac
"""

    def answer(self, name, *words, check=True):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "tools"))
            for file, text in (("tools/setup.sh", self.SETUP), ("meson", self.MESON), ("tests.json", json.dumps(self.TESTS))):
                with open(os.path.join(root, file), "w", encoding="utf-8") as stub:
                    stub.write(text)
            os.chmod(os.path.join(root, "meson"), 0o755)
            shutil.copy(os.path.join(TOOLS, "test"), os.path.join(root, "tools"))
            done = subprocess.run([os.path.join(root, "tools/test"), *words], check=check and name != "", timeout=60, capture_output=True,
                                  text=True, env={**os.environ, "name": name, "PATH": root + ":" + os.environ["PATH"]})
            with open(os.path.join(root, "asked"), encoding="utf-8") as file:
                return done.stdout.splitlines(), file.read().splitlines(), done.returncode

    def test_a_test_may_be_named_as_it_is_printed(self):
        for name in ("pool-eager", "emm:unit+pool / pool-eager"):
            self.assertRegex(self.answer("pool-eager", name)[1][-1], r"--print-errorlogs pool-eager$")

    def test_a_name_that_no_test_has_ends_it(self):
        said, asked, status = self.answer("", "nosuch")
        self.assertNotEqual(status, 0)
        self.assertFalse([line for line in said if line.startswith("testing")])
        self.assertRegex(asked[-1], "--list")

    def test_a_name_that_no_test_has_ends_it_beside_one_that_there_is(self):
        said, _, status = self.answer("pool-eager", "pool-eager", "nosuch", check=False)
        self.assertNotEqual(status, 0)
        self.assertFalse([line for line in said if line.startswith("testing")])
        self.assertEqual(self.answer("pool-eager", "--suite", "unit", "pool-*")[2], 0)

    def test_a_list_of_tests_has_nothing_but_their_names(self):
        self.assertEqual(self.answer("pool-eager", "--list")[0], ["emm:unit+pool / pool-eager"])

    def test_only_what_the_chosen_tests_need_is_fetched(self):
        for name, fetched in (("pool-eager", []), ("lookups", ["fetch runtimes"]), ("the plugin rmm", ["fetch rmm"]),
                              ("resources", ["fetch cccl"])):
            said = self.answer(name, name)[0]
            self.assertEqual([line for line in said if line.startswith("fetch")], fetched, name)

    def test_who_runs_a_few_tests_is_told_which_have_passed(self):
        self.assertEqual(self.answer("pool-eager", "pool-eager")[0][-1], "passed: emm:unit+pool / pool-eager")


class Quickstart(unittest.TestCase):
    def test_what_comes_next_stands_in_two_columns(self):
        with tempfile.TemporaryDirectory() as root:
            for file, text in (("tools/setup.sh", Names.SETUP), ("build/tools/emm/emm", "#!/bin/sh\n")):
                os.makedirs(os.path.dirname(os.path.join(root, file)), exist_ok=True)
                with open(os.path.join(root, file), "w", encoding="utf-8") as stub:
                    stub.write(text)
            os.chmod(os.path.join(root, "build/tools/emm/emm"), 0o755)
            shutil.copy(os.path.join(TOOLS, "quickstart"), os.path.join(root, "tools"))
            said = subprocess.run([os.path.join(root, "tools/quickstart")], check=True, timeout=60, capture_output=True,
                                  text=True).stdout.splitlines()
            rows = [re.fullmatch(r"  (\S.*?) {2,}(\S.*)", row) for row in said[said.index("Where to go next:") + 1:]]
            self.assertGreater(len(rows), 6)
            self.assertEqual({row and row.start(2) for row in rows}, {rows[0].start(2)}, "\n".join(said))


class Bare(unittest.TestCase):
    def test_packages_come_from_the_mirror_of_apt_or_else_from_that_of_debootstrap(self):
        for mirror, expected in (("http://mirror.example/debian",) * 2, ("", "")):
            with tempfile.TemporaryDirectory() as folder:
                for name, text in (("apt-get", f"[[ $* != *'Label: Debian'* ]] || echo {mirror}"),
                                   ("debootstrap", f'printf "%s\\n" "$@" >{folder}/asked; exit 1')):
                    path = os.path.join(folder, name)
                    with open(path, "w", encoding="utf-8") as file:
                        file.write("#!/usr/bin/env bash\n" + text + "\n")
                    os.chmod(path, 0o755)
                subprocess.run([os.path.join(TOOLS, "../tests/clients/bare"), path, os.path.join(folder, "systems")],
                               env={**os.environ, "PATH": folder + ":" + os.environ["PATH"]}, check=False, timeout=60)
                with open(os.path.join(folder, "asked"), encoding="utf-8") as file:
                    self.assertEqual(file.read().splitlines()[-2:], [expected, "sid"])


class Setup(unittest.TestCase):
    """The rules that the two tools and CI share."""

    def headers(self, **variables):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        return subprocess.run(["bash", "-c", f"source {TOOLS}/setup.sh; cuda_headers"], text=True,
                              env={**environment, **variables}, capture_output=True, check=False).stdout

    def test_a_toolkit_that_cuda_path_or_cuda_home_names_comes_first(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "include"))
            header = os.path.join(folder, "include", "cuda.h")
            with open(header, "w", encoding="utf-8") as file:
                file.write("#define CUDA_VERSION 13000\n")
            found = os.path.dirname(header)
            self.assertEqual(self.headers(CUDA_PATH=folder), found)
            self.assertEqual(self.headers(CUDA_HOME=folder), found)
            self.assertEqual(self.headers(CUDA_PATH=folder, CUDA_HOME="/nonexistent"), found)
            done = run("cuda-headers", env={**os.environ, "CUDA_PATH": folder})
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{found}\n", ""))
            os.remove(header)
            self.assertNotEqual(self.headers(CUDA_PATH=folder), found)

    def test_nothing_is_installed_that_the_build_does_not_ask_for(self):
        with open(os.path.join(TOOLS, "setup.sh"), encoding="utf-8") as file:
            libraries = re.findall(r"^have_library (\S+)", file.read(), re.MULTILINE)
        asked = ""
        for folder, _, files in os.walk(os.path.dirname(TOOLS)):
            if "meson.build" in files and "/build" not in folder:
                with open(os.path.join(folder, "meson.build"), encoding="utf-8") as file:
                    asked += file.read()
        for library in libraries:
            self.assertRegex(asked, rf"dependency\('{library}\w*'", library)


if __name__ == "__main__":
    unittest.main(verbosity=2)
