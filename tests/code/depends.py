#!/usr/bin/env python3
"""depends.py BUILD: each test depends on all files of the build that its command and its environment name.

What a test depends on is all that Meson builds for it, where one test or suite is asked for in a folder that is not whole.
"""
import json
import os
import re
import subprocess
import sys


def faults(build, tests, files, closure):
    """`files`: what the build makes, from its folder on. `closure`: of a target's id, all that is made with it."""
    for test in tests:
        words = " ".join([*test["cmd"], *test["env"].values()])
        named = {os.path.normpath(path) for path in re.findall(re.escape(build) + r"/([^\s:,;]+)", words)}
        made = set().union(*(closure(target) for target in test["depends"]))
        for path in sorted(named & files - made):
            yield f"{test['name']}: names {path}, and does not depend on it"


class Build:
    def __init__(self, folder):
        self.folder = folder
        self.targets = {target["id"]: [os.path.relpath(path, folder) for path in target["filename"]]
                        for target in self.introspected("--targets")}
        self.known = {}

    def introspected(self, what):
        return json.loads(subprocess.check_output(["meson", "introspect", self.folder, what]))

    def ninja(self, *words):
        return subprocess.run(["ninja", "-C", self.folder, "-t", *words], capture_output=True, text=True,
                              check=True).stdout.splitlines()

    def files(self):
        rules = (line.rpartition(": ") for line in self.ninja("targets", "all"))
        return {name for name, _, rule in rules if rule != "phony"}

    def closure(self, target):
        if target not in self.known:
            own = self.targets[target]
            self.known[target] = {*own, *(line for path in own for line in self.ninja("inputs", path))}
        return self.known[target]


def main():
    build = Build(os.path.abspath(sys.argv[1]))
    tests = build.introspected("--tests")
    found = list(faults(build.folder, tests, build.files(), build.closure))
    print("\n".join(found) or f"{len(tests)} tests depend on what they name")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
