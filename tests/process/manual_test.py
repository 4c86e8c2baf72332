#!/usr/bin/env python3
"""manual_test.py FOLDER: the generated manual pages and completions say what --help says."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

from emm_program import run

FOLDER = os.path.realpath(sys.argv.pop(1))


def text_of(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def commands():
    return re.findall(r"(?m)^  (\w+) ", run("--help").stdout.split("Subcommands:\n")[1].split("\n\n")[0])


def options(command):
    listed = run(*([command] if command else []), "--help").stdout.split("Options:\n")[1].split("\n\n")[0]
    return re.findall(r"(?m)^  (?:-\w,)?(--[\w-]+)", listed)


class Pages(unittest.TestCase):
    def test_there_is_one_for_each_command_and_it_has_each_option_of_the_help(self):
        self.assertEqual(sorted(name for name in os.listdir(FOLDER) if name.endswith(".1")),
                         sorted(["emm.1"] + [f"emm-{command}.1" for command in commands()]))
        for command in ["", *commands()]:
            page = text_of(f"emm-{command}.1" if command else "emm.1").replace("\\-", "-")
            self.assertGreater(len(options(command)), 1 if command else 0)
            for option in options(command):
                self.assertIn(f"\\fB{option}\\fR", page, command)

    def test_the_page_of_the_variables_has_the_meaning_of_each_that_info_shows(self):
        page = text_of("emm.7")
        entries = dict(re.findall(r"(?m)^\.TP\n\\fB(\w+)\\fR\n(.*)$", page))
        self.assertEqual(sorted(entries), sorted(json.loads(run("info", "--json").stdout)["environment"]))
        self.assertGreater(min(len(meaning) for meaning in entries.values()), 30)
        self.assertIn("written \\fB%3A %3B %2C %3D %25 %2B\\fR", page)
        self.assertIn(".\nIf unset: \\fBlibcuda.so.1\\fR.\n", page)
        self.assertNotRegex(page, r"\]\(|`|README|\.md")

    @unittest.skipUnless(shutil.which("groff"), "needs groff")
    def test_groff_renders_them_without_a_warning(self):
        for page in [name for name in os.listdir(FOLDER) if re.search(r"\.[17]$", name)]:
            done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", os.path.join(FOLDER, page)],
                                  capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("DESCRIPTION", re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout))


class Completion(unittest.TestCase):
    def bash(self, *words):
        script = (f"source {FOLDER}/emm; COMP_WORDS=(emm \"$@\"); COMP_CWORD=$#; _emm; "
                  "printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_bash_offers_commands_options_and_the_values_of_options(self):
        self.assertEqual(sorted(word for word in self.bash("") if word[0] != "-"), sorted(commands()))
        self.assertEqual(self.bash("re"), ["replay", "resume", "report"])
        for command in commands():
            self.assertTrue(set(options(command)) <= set(self.bash(command, "--")), command)
        self.assertEqual(self.bash("replay", "--order", ""), ["strict", "free"])
        self.assertEqual(self.bash("export", "log.csv", "--to", "ch"), ["chrome-trace"])
        for words in (["replay", ""], ["run", "--", "--"], ["replay", "--plugin", ""]):
            self.assertEqual(self.bash(*words), [], words)  # files, by bash itself

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_zsh_reads_its_file(self):
        done = subprocess.run(["zsh", "-n", FOLDER + "/_emm"], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_zsh_and_fish_have_each_option_of_the_help(self):
        zsh, fish = text_of("_emm"), text_of("emm.fish")
        for command in commands():
            own = zsh.split(f"        {command})\n")[1].split(";;")[0]
            for option in options(command):
                self.assertIn(f"'*{option}[", own)
                self.assertRegex(fish, rf"(?m)^complete -c emm -n '__fish_seen_subcommand_from {command}'( -s \w+)? "
                                       rf"-l {option[2:]}( |$)")

    @unittest.skipUnless(shutil.which("fish"), "needs fish")
    def test_fish_offers_commands_options_and_the_values_of_options(self):
        def offered(line):
            done = subprocess.run(["fish", "--no-config", "-c", f"source {FOLDER}/emm.fish; complete -C {json.dumps(line)}"],
                                  capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [found.split("\t")[0] for found in done.stdout.splitlines()]

        self.assertTrue(set(commands()) <= set(offered("emm ")))
        self.assertTrue({"--order", "--touch"} <= set(offered("emm replay --")))
        self.assertEqual(sorted(offered("emm replay --order ")), ["free", "strict"])


if __name__ == "__main__":
    unittest.main()
