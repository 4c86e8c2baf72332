#!/usr/bin/env python3
"""The help of the emm tool, and its errors for wrong command lines."""
import os
import re
import shlex
import subprocess
import tempfile
import unittest

from emm_program import EMM, run


class New(unittest.TestCase):
    def test_the_steps_that_it_prints_start_this_tool_whatever_path_is(self):
        for path, starts in (("/usr/bin:/bin", EMM), (f"{os.path.dirname(EMM)}:/usr/bin:/bin", "emm")):
            with self.subTest(path), tempfile.TemporaryDirectory() as folder:
                said = subprocess.run([EMM, "new", "mine"], cwd=folder, env={"PATH": path}, capture_output=True, text=True,
                                      check=True).stdout
                step = next(line for line in said.splitlines() if " check " in line)
                self.assertEqual(shlex.split(step)[1], starts, said)


    def test_where_there_is_no_gpu_the_last_step_chooses_the_simulated_driver(self):
        has_gpu = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")
        for driver, expected in (({}, "" if has_gpu else "EMM_DRIVER=sim "), ({"EMM_DRIVER": "/usr/lib/libcuda.so.1"}, "")):
            with self.subTest(driver), tempfile.TemporaryDirectory() as folder:
                said = subprocess.run([EMM, "new", "mine"], cwd=folder, env={"PATH": "/usr/bin:/bin", **driver},
                                      capture_output=True, text=True, check=True).stdout
                self.assertEqual(said.splitlines()[-1], f"  {expected}EMM_PLUGIN=$PWD/build/libemm-mine.so PROGRAM")


class Help(unittest.TestCase):
    def test_each_command_explains_its_options_cases_and_exit_status(self):
        for command, words in {"": ["info", "replay", "bench", "events", "run", "Exit status"],
                               "info": ["SPEC", "--json"], "events": ["LOG", "--json"],
                               "run": ["-- PROGRAM", "--plugin", "--print-env", "--audit", "127"],
                               "replay": ["TRACE", "--order", "--touch", "--warm", "--generate", "dataframe"],
                               "bench": ["--case", "--threads", "--size", "pair_unordered"]}.items():
            done = run(*([command] if command else []), "--help")
            self.assertEqual(done.returncode, 0)
            for word in words:
                self.assertTrue(re.search(re.escape(word), done.stdout), f"{command}: {word}")

    def test_behind_an_option_stands_its_value_alone(self):
        commands = re.findall(r"(?m)^  (\w+) ", run("--help").stdout.split("Subcommands:\n")[1].split("\n\n")[0])
        self.assertGreater(len(commands), 10)
        for command in commands:
            self.assertNotRegex(run(command, "--help").stdout, r"Excludes:|Needs:|REQUIRED|\(\d+x\)| (UINT|INT|FLOAT)\b")

    def test_wrong_usage_is_status_2_and_says_so_on_standard_error(self):
        for arguments in ([], ["replay"], ["replay", "--generate", "trian"], ["bnech"],
                          ["replay", "/nowhere.csv", "--order", "loose"]):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertRegex(done.stderr, "^emm: ")

    def test_what_is_no_command_or_option_is_named(self):
        for arguments, named in ((["bnech"], "bnech"), (["--frob"], "--frob"),
                                 (["info", "--frob"], "--frob"), ([], "give a command"),
                                 (["check", "pool", "--filter", "nonsense"], "'nonsense'")):
            self.assertIn(named, run(*arguments).stderr)

    def test_a_misspelt_command_or_option_is_told_what_may_be_meant(self):
        for arguments, meant in ((["chek", "pool"], "no command is called 'chek'; did you mean 'check'?"),
                                 (["check", "--filer", "x"], "check: no option is called '--filer'; did you mean '--filter'?"),
                                 (["info", "--plugn", "x"], "info: no option is called '--plugn'; SPEC stands without one, as in emm info SPEC"),
                                 (["check", "--plugin", "x"], "check: no option is called '--plugin'; SPEC stands without one"),
                                 (["replay", "--trace", "x"], "replay: no option is called '--trace'; TRACE stands without one"),
                                 (["events", "--jsn"], "events: no option is called '--jsn'; did you mean '--json'?"),
                                 (["export", "x", "--too", "chrome-trace"], "export: no option is called '--too'; did you mean '--to'?"),
                                 (["new", "--cp"], "new: no option is called '--cp'; did you mean '--cpp'?")):
            self.assertIn(meant, run(*arguments).stderr)

    def test_a_command_line_that_cannot_be_obeyed_is_told_what_was_expected_and_what_was_found(self):
        for arguments, said in (
                (["bench", "--threads", "0"], "bench: --threads: expected a whole number from 1 to 1024, found '0'"),
                (["bench", "--case", "pear"], "bench: --case: expected bare, "),
                (["replay", "--generate", "train", "--seed", "-3"], "replay: --seed: expected a whole number, found '-3'"),
                (["replay", "x.csv", "--seed", "3"], "replay: --seed needs --generate"),
                (["replay", "x.csv", "--generate", "train"], "replay: give TRACE or --generate, not both"),
                (["replay", "x.csv", "--touch=x"], "replay: --touch: expected no value, found 'x'"),
                (["replay", "--plugin"], "replay: --plugin: expected SPEC, found none"),
                (["events"], "events: LOG is missing"),
                (["export", "x.csv"], "export: --to FORMAT is missing"),
                (["export", "x.csv", "--to", "chrome-trace", "--last", "0"], "--last: expected a whole number above 0, found '0'"),
                (["import", "x", "--device", "x"], "import: --device: expected a whole number, found 'x'"),
                (["new", "--c", "--cpp", "mine"], "new: give --cpp or --c, not both"),
                (["top", "--interval", "0"], "top: --interval: expected a number from 0.05 to 86400, found '0'"),
                (["top", "--count", "1.5"], "top: --count: expected a whole number above 0, found '1.5'"),
                (["top", "--dump", "x"], "top: --dump: expected a whole number from 1 to "),
                (["check", "pool", "--jobs", "-1"], "check: --jobs: expected a whole number from 1 to 1024, found '-1'"),
                (["report", "x.csv", "--compare", "pool"], "report: --compare: expected SPEC SPEC..., found 1"),
                (["check", "pool;async"], "check: expected one plugin, found a list, 'pool;async'")):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
