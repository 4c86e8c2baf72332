#!/usr/bin/env python3
"""tree.py ROOT: the top level is what it should be, folders say what they are, files stay readable."""
import os
import re
import shutil
import subprocess
import sys

TOP = {"meson.build", "meson_options.txt", "include", "lib", "plugins", "tests", "tools",
       "README.md", "LICENSE"}
DOCUMENTED = ("lib", "plugins", "tests", "tools")
SOURCES = (".h", ".hpp", ".c", ".cpp", ".py", ".sh", "meson.build")
WRITTEN = SOURCES + (".md", ".txt", ".map")
LONGEST = 500
# One contract in one file, which is read from top to bottom.
EXEMPT = {"include/emm/plugin.h", "include/emm/emm.h", "include/emm/emm.hpp"}
# In pieces, so that this file does not contain them.
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "X" + "XX"]
UNFINISHED_WORD = re.compile(r"\b(" + "|".join(UNFINISHED) + r")\b")


def files_of(root):
    """Files that git tracks or would track; without git, all files that are not hidden or in a build folder."""
    if os.path.exists(os.path.join(root, ".git")) and shutil.which("git"):
        listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                                 capture_output=True, text=True, check=False)
        if listing.returncode == 0:
            files = listing.stdout.splitlines()
            return sorted(f for f in files if os.path.exists(os.path.join(root, f)))
    found = []
    for path, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build", "__pycache__"))
                            and not os.path.exists(os.path.join(path, f, "build.ninja")))
        found += [os.path.relpath(os.path.join(path, name), root) for name in sorted(files)]
    return found


def text_of(path):
    with open(path, "rb") as file:
        data = file.read()
    return None if b"\0" in data[:4096] else data.decode("utf-8")


def faults(root):
    files = files_of(root)
    top = {path.split("/")[0] for path in files}
    for name in sorted(top - TOP):
        if not name.startswith("."):
            yield f"{name}: does not belong at the top level"
    for name in sorted(TOP - top):
        yield f"{name}: is missing at the top level"
    for folder in DOCUMENTED:
        if folder in top and f"{folder}/README.md" not in files:
            yield f"{folder}/README.md: is missing"
    for path in files:
        text = text_of(os.path.join(root, path))
        if text is None:
            continue
        lines = text.count("\n")
        limited = path.endswith(SOURCES) and not path.startswith("tests/abi/") and path not in EXEMPT
        if limited and lines > LONGEST:
            yield f"{path}: has {lines} lines, over {LONGEST}"
        if path.endswith(WRITTEN) and text and not text.endswith("\n"):
            yield f"{path}: does not end with a line end"
        for word in sorted(set(UNFINISHED_WORD.findall(text))):
            yield f"{path}: says {word}"


def main():
    found = list(faults(sys.argv[1]))
    print("\n".join(found) or "the tree is in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
