#!/usr/bin/env python3
"""shell.py ROOT: shellcheck has nothing to say about the scripts; skips without shellcheck."""
import os
import shutil
import subprocess
import sys

from tree import files_of

SKIP = 77


def is_shell(path):
    if path.endswith(".sh"):
        return True
    with open(path, "rb") as file:
        return has_shell_shebang(file.readline())


def has_shell_shebang(line):
    return line.startswith(b"#!") and line.rstrip().endswith((b"bash", b"/sh"))


def main():
    root = sys.argv[1]
    if not shutil.which("shellcheck"):
        print("skipped: shellcheck is not installed")
        return SKIP
    scripts = [f for f in files_of(root) if is_shell(os.path.join(root, f))]
    done = subprocess.run(["shellcheck", "-x", *scripts], cwd=root, check=False)
    print(f"looked at {', '.join(scripts)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
