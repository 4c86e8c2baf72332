#!/usr/bin/env python3
"""`emm run` as its users meet it, from an installed tree with a stand-in for the interposer."""
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

OPENS = os.environ["EMM_TEST_OPENS"]
PLUGINS = {name: os.environ[f"EMM_TEST_{name.upper()}"] for name in ("pool", "passthrough", "pluggable")}
INSTALLED = pathlib.Path(os.environ["EMM_TEST_INSTALLED"], "run")
STAND_IN = os.environ["EMM_TEST_STAND_IN"]
SANITIZERS = os.environ["EMM_TEST_SANITIZERS"]
PT_INTERP = 3


class Tree(unittest.TestCase):
    """The tool finds libemm, and from its folder the interposer and the plugins."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(os.path.realpath(folder.name))
        self.make_tree(self.folder)

    def make_tree(self, root):
        self.tool = root / "tools/emm/emm"  # libemm is looked for in ../../lib
        self.run_folder = root / "lib/emm/run"
        for path, original in ((self.tool, os.environ["EMM_TEST_PROGRAM"]),
                               (root / "lib/libemm.so.1", os.environ["EMM_TEST_LIBRARY"]),
                               (self.run_folder / "libcuda.so.1", STAND_IN),
                               (self.run_folder / "libemm-audit.so", os.environ["EMM_TEST_AUDIT"]),
                               *((root / f"lib/emm/libemm-{name}.so", plugin)
                                 for name, plugin in PLUGINS.items())):
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(original, path)

    def environment(self, variables):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("EMM_", "LD_"))}
        return {**kept, **variables}

    def emm(self, *words, **variables):
        return subprocess.run([self.tool, "run", *words], env=self.environment(variables), text=True,
                              capture_output=True, timeout=120, check=False)

    def output(self, *words, **variables):
        done = self.emm(*words, **variables)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def file(self, name, content, mode=0o755):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    def static_program(self):
        """/bin/sh without the entry that names its dynamic linker."""
        program = bytearray(pathlib.Path("/bin/sh").read_bytes())
        first, = struct.unpack_from("<Q", program, 32)
        size, count = struct.unpack_from("<HH", program, 54)
        for header in range(first, first + size * count, size):
            if struct.unpack_from("<I", program, header)[0] == PT_INTERP:
                struct.pack_into("<I", program, header, 0)
        return self.file("static", bytes(program))


class Refused(Tree):
    def assert_refused(self, status, sentence, *words, **variables):
        done = self.emm(*words, **variables)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertRegex(done.stderr, "^emm( run)?: ")
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_no_program_is_wrong_usage(self):
        for words in ([], ["--"], ["--plugin", "pool"], ["--zero", "--"]):
            self.assert_refused(2, "run: name a program after '--'", *words)

    def test_a_program_without_the_two_dashes_is_wrong_usage(self):
        for words in (["true"], ["--zero", "true"], ["true", "--lr", "3"]):
            done = self.emm(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("run: expected '--' before the program, as in emm run -- true", done.stderr)

    def test_a_misspelt_option_is_told_what_may_be_meant(self):
        done = self.emm("--plugn", "pool", "--", "true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no option is called '--plugn'; did you mean '--plugin'?", done.stderr)

    def test_an_empty_spec_is_wrong_usage(self):
        self.assert_refused(2, "--plugin: expected a SPEC", "--plugin", "", "--", "true")

    def test_a_plugin_without_options_that_it_needs_is_refused(self):
        self.assert_refused(1, "pluggable: option lib is missing: the absolute path of a library", "--plugin", "pluggable",
                            "--", "true")

    def test_caches_that_are_not_known_are_wrong_usage(self):
        for found in ("tensorflow", "", "torch,", "torch+cupy"):
            self.assert_refused(2, f"run: --release: expected torch, cupy or torch,cupy, found '{found}'", "--release",
                                found, "--", "true")

    def test_a_limit_that_makes_no_sense_is_wrong_usage(self):
        size = "a size such as 8GiB (in KiB, MiB, GiB or TiB), or GPU-UUID=8GiB;*=16GiB"
        for found, expected in (("", size), ("8GB", size), ("0=8GiB", size), ("1MiB", "a size of at least 2MiB")):
            self.assert_refused(2, f"run: --limit: expected {expected}, found '{found}'", "--limit", found, "--", "true")

    def test_a_shared_limit_that_makes_no_sense_is_wrong_usage(self):
        for found in ("", "17", "a/b"):
            self.assert_refused(2, f"run: --shared: expected a letter and up to 63 more letters, digits, '.', '_' and '-', found "
                                   f"'{found}'", "--limit", "1GiB", "--shared", found, "--", "true")
        self.assert_refused(2, "run: --shared needs --limit SIZE", "--shared", "job", "--", "true")

    def test_tracking_that_makes_no_sense_is_wrong_usage(self):
        for found in ("modules", "", "stack:sample=1/0"):
            self.assert_refused(2, "run: --track: expected module or stack, with :sample=1/N behind it or nothing (N up to "
                                   f"1000000), found '{found}'", "--track", found, "--", "true")

    def test_a_record_in_a_folder_that_is_not_there_is_wrong_usage(self):
        record = self.folder / "nothing/log.csv"
        self.assert_refused(2, f"the folder {record.parent} does not exist", "--record", record, "--", "true")

    def test_a_record_that_cannot_be_a_file_is_wrong_usage(self):
        self.assert_refused(2, "--record: expected the path of a file, found ''", "--record", "", "--",
                            "true")
        for record in (self.folder, "/dev/null"):
            self.assert_refused(2, f"--record {record}: it is a folder or a device, not a regular file", "--record", record, "--", "true")

    def test_a_program_that_is_not_there_is_status_127(self):
        self.assert_refused(127, "cannot find the program 'no-such-program' in the folders of PATH", "--", "no-such-program")
        self.assert_refused(127, "cannot find the program '/nowhere/app'", "--",
                            "/nowhere/app")
        self.assert_refused(127, "cannot find the program ''", "--", "")

    def test_a_name_with_control_characters_is_told_on_one_line_without_them(self):
        for words in (["--", "a\nb\x1b[31m"], ["--release", "a\nb\x1b[31m", "--", "true"],
                      ["--track", "a\nb\x1b[31m", "--", "true"]):
            done = self.emm(*words)
            self.assertIn("'a b?[31m'", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_program_that_cannot_be_executed_is_status_126(self):
        plain = self.file("plain", "echo\n", 0o644)
        for path, found in ((plain, "Permission denied"), (self.folder, "Is a directory"),
                            (plain / "x", "Not a directory")):
            self.assert_refused(126, f"cannot run {path}: {found}", "--", path)

    def test_a_static_program_is_status_126(self):
        static = self.static_program()
        self.assert_refused(126, f"cannot run {static} on emm: it is linked statically", "--",
                            static)

    def test_a_script_is_judged_by_its_interpreter(self):
        static = self.static_program()
        for line in (f"#!{static}", f"#!/usr/bin/env -S A=1 {static} -u"):
            script = self.file("script", f"{line}\n")
            self.assert_refused(126, f"cannot run {script}: its interpreter {static} on emm: it "
                                     "is linked statically", "--", script)
        script = self.file("script", "#!/nowhere/sh\n")
        self.assert_refused(126, f"cannot run {script}: its interpreter /nowhere/sh: No such "
                                 "file or directory", "--", script)

    def test_a_program_for_another_architecture_is_status_126(self):
        program = bytearray(pathlib.Path("/bin/sh").read_bytes())
        struct.pack_into("<H", program, 18, 243)
        path = self.file("foreign", bytes(program))
        self.assert_refused(126, "found RISC-V", "--", path)

    def test_a_program_with_another_users_rights_is_status_126(self):
        if os.geteuid() == 0:
            program = self.file("rights", pathlib.Path("/bin/sh").read_bytes())
            os.chown(program, 65534, -1)
            program.chmod(0o4755)
            found = 65534
        else:
            program = next((path for path in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount")
                            if os.path.exists(path) and os.stat(path).st_mode & 0o4000), None)
            found = 0
        if not program or os.statvfs(program).f_flag & os.ST_NOSUID or "NoNewPrivs:\t1" in \
                pathlib.Path("/proc/self/status").read_text(encoding="utf-8"):
            self.skipTest("no program of this machine can have another user's rights")
        self.assert_refused(126, f"it is set-user-id, so the dynamic linker ignores LD_PRELOAD: "
                                 f"expected user {os.getuid()}, found {found}", "--", program)

    def test_a_plugin_that_does_not_load_is_told_as_every_command_does(self):
        for words, variables in ((["--plugin", "pol"], {}), ([], {"EMM_PLUGIN": "pol"}),
                                 (["--plugin", "pol"], {"EMM_PLUGIN": "pool"})):
            done = self.emm(*words, "--", "true", **variables)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("emm: no plugin is called 'pol'", done.stderr)
            self.assertIn("did you mean 'pool'?", done.stderr)
        done = self.emm("--plugin", "pool:maxx=1", "--", "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("maxx", done.stderr)

    def test_a_tree_without_the_interposer_takes_the_installed_one_or_is_told_where_it_should_be(self):
        (self.run_folder / "libcuda.so.1").unlink()
        if (INSTALLED / "libcuda.so.1").exists():
            self.assertIn(str(INSTALLED), self.output("--print-env"))
        else:
            self.assert_refused(1, "run: the interposer is missing: there is no libcuda.so.1 in "
                                   f"{self.run_folder} or {INSTALLED}", "--", "true")

    def test_a_tree_that_cannot_be_preloaded_from_is_refused(self):
        for name, unfit in (("my emm", " "), ("a:b", ":"), ("a;b", ";"), ("$LIB", "$")):
            self.make_tree(self.folder / name)
            self.assert_refused(1, f"no library can be preloaded from {self.run_folder}, because the "
                                   f"path has a '{unfit}'",
                                "--print-env")


class Started(Tree):
    def seen(self, *words, **variables):
        """The environment that a program gets."""
        return dict(line.split("=", 1) for line in
                    self.output(*words, "--", "env", "-0", **variables).split("\0") if line)

    def test_the_environment_arrives(self):
        record = self.folder / "log.csv"
        seen = self.seen("--plugin", "pool:max=8MiB", "--sync-free", "--zero", "--no-children",
                         "--audit", "--release", "torch,cupy", "--record", record,
                         "--track", "stack", KEPT="1", EMM_PLUGIN="passthrough")
        for name, value in {"LD_PRELOAD": f"{self.run_folder}/libcuda.so.1",
                            "LD_LIBRARY_PATH": str(self.run_folder),
                            "LD_AUDIT": f"{self.run_folder}/libemm-audit.so",
                            "EMM_PLUGIN": "pool:max=8MiB", "EMM_EVENT_LOG": str(record), "KEPT": "1",
                            "EMM_TRACK": "stack",
                            "EMM_RUN": "sync-free,zero,no-children,release=torch+cupy"}.items():
            self.assertEqual(seen.get(name), value, name)

    def test_without_options_nothing_else_is_set(self):
        seen = self.seen(EMM_RUN="zero")
        self.assertEqual({name for name in seen if name.startswith(("EMM_", "LD_"))},
                         {"LD_PRELOAD", "LD_LIBRARY_PATH"})

    def test_the_check_before_the_program_says_only_what_is_wrong(self):
        log = self.folder / "emm.log"
        seen = self.seen(EMM_LOG=f"info:{log}")
        self.assertEqual(seen.get("EMM_LOG"), f"info:{log}")
        self.assertEqual(log.read_text(encoding="utf-8") if log.exists() else "", "")

    def test_the_interposer_is_loaded_first(self):
        maps = self.output("--", "cat", "/proc/self/maps")
        self.assertIn(f"{self.run_folder}/libcuda.so.1", maps)

    def test_a_record_is_found_from_every_folder(self):
        record = os.path.relpath(self.folder / "log-%p.csv")
        self.assertEqual(self.seen("--record", record)["EMM_EVENT_LOG"],
                         str(self.folder / "log-%p.csv"))

    def test_the_tool_itself_writes_no_event_log(self):
        record = self.folder / "log.csv"
        self.output("--record", record, "--", "true")
        self.assertEqual(list(self.folder.glob("log.csv*")), [])

    def test_arguments_arrive_as_they_are(self):
        words = ["--plugin", "a b", "", "--", "run", "'", "[1,2]", "-h"]
        self.assertEqual(self.output("--", "printf", "<%s>", *words),
                         "".join(f"<{word}>" for word in words))

    def test_the_end_of_the_program_is_that_of_the_command(self):
        self.assertEqual(self.emm("--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.emm("--", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_no_signal_is_ignored_in_the_program(self):
        def ignored(text):
            return int(next(line for line in text.splitlines() if line.startswith("SigIgn")).split()[1], 16)
        alone = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True)
        self.assertEqual(ignored(self.output("--", "cat", "/proc/self/status")), ignored(alone.stdout))

    def test_scripts_run_with_and_without_a_first_line(self):
        for content in ("#!/bin/sh\necho $1\n", "#!/usr/bin/env sh\necho $1\n", "echo $1\n"):
            self.assertEqual(self.output("--", self.file("script", content), "hello"), "hello\n")

    def test_a_run_inside_a_run_is_one_run(self):
        # The tool may have a sanitizer's runtime, which then comes behind the interposer, and for which the audit
        # interface leaves too little thread-local storage.
        words = ["--zero", "--plugin", "pool"] + (["--audit"] if SANITIZERS == "none" else [])
        sanitizer = {"ASAN_OPTIONS": "verify_asan_link_order=0"}
        self.assertEqual(self.seen(*words, "--", self.tool, "run", *words, **sanitizer),
                         self.seen(*words, **sanitizer))

    def test_a_list_of_plugins_is_served_by_the_first_that_loads(self):
        done = self.emm("--plugin", "pol;pool", "--", "true")
        self.assertEqual(done.returncode, 0)
        self.assertIn("no plugin is called 'pol'", done.stderr)


class PrintEnv(Tree):
    WORDS = ["--plugin", "pool:max=8MiB", "--zero", "--audit", "--release", "torch,cupy"]

    def test_a_shell_gets_what_a_program_would_get(self):
        variables = {"LD_LIBRARY_PATH": "/it's here:", "EMM_EVENT_LOG": "/tmp/x.csv"}
        wanted = self.output(*self.WORDS, "--", "env", **variables)
        script = f"eval \"$('{self.tool}' run \"$@\" --print-env)\"; exec env"
        done = subprocess.run(["sh", "-c", script, "sh", *self.WORDS], capture_output=True, text=True,
                              env=self.environment(variables), check=True)
        self.assertEqual(self.of_emm(done.stdout), self.of_emm(wanted))

    def of_emm(self, text):
        return sorted(line for line in text.splitlines() if line.startswith(("EMM_", "LD_")))

    def test_each_line_is_one_variable_in_quotes(self):
        self.assertEqual(self.output("--print-env", "--plugin", "pool"),
                         f"export LD_PRELOAD='{self.run_folder}/libcuda.so.1'\n"
                         f"export LD_LIBRARY_PATH='{self.run_folder}'\n"
                         "export EMM_PLUGIN='pool'\n")

    def test_options_of_an_outer_run_are_unset(self):
        self.assertIn("unset EMM_RUN\n", self.output("--print-env", EMM_RUN="zero"))

    def test_a_program_that_is_given_is_checked_and_not_started(self):
        self.assertNotIn("started", self.output("--print-env", "--", "echo", "started"))
        self.assertEqual(self.emm("--print-env", "--", "no-such-program").returncode, 127)


class Audit(Tree):
    """The libcuda that a program gets, by each way to ask for it."""

    def setUp(self):
        super().setUp()
        self.driver = self.folder / "driver/libcuda.so.1"
        self.driver.parent.mkdir()
        shutil.copy(STAND_IN, self.driver)
        (self.driver.parent / "libcuda.so").symlink_to(self.driver.name)
        self.interposer = f"{self.run_folder}/libcuda.so.1"

    def opened(self, how, *names, options=()):
        return self.output(*options, "--", OPENS, how, *map(str, names)).splitlines()

    def test_by_its_name_a_program_gets_the_interposer_without_it(self):
        for how in ("plain", "deepbind", "interposer"):
            self.assertEqual(self.opened(how, "libcuda.so.1"), [self.interposer])

    def test_by_its_path_a_program_gets_the_real_driver_without_it(self):
        self.assertEqual(self.opened("plain", self.driver), [str(self.driver)])

    def test_with_it_every_name_and_path_is_the_interposer(self):
        names = ["libcuda.so.1", "libcuda.so", self.driver, self.driver.parent / "libcuda.so",
                 os.path.relpath(self.driver), "./libcuda.so.1", "/nowhere/libcuda.so.1"]
        for how in ("plain", "deepbind", "interposer"):
            self.assertEqual(self.opened(how, *names, options=["--audit"]),
                             [self.interposer] * len(names))

    def test_the_interposers_own_way_to_write_a_path_passes(self):
        marked = f"{self.driver.parent}/./libcuda.so.1"
        for how in ("interposer", "plain"):
            self.assertEqual(self.opened(how, marked, self.driver, "libcuda.so.1", options=["--audit"]),
                             [str(self.driver), self.interposer, self.interposer])

    def test_other_libraries_are_left_alone(self):
        names = ["libm.so.6", f"{self.driver}.other", "libcuda.so.1.1", "notlibcuda.so.1"]
        self.assertEqual(self.opened("plain", *names, options=["--audit"]), self.opened("plain", *names))

    def test_a_new_namespace_gets_an_interposer_by_name(self):
        self.assertEqual(self.opened("namespace", "libcuda.so.1", options=["--audit"]),
                         [self.interposer])


if __name__ == "__main__":
    unittest.main()
