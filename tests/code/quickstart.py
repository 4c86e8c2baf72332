#!/usr/bin/env python3
"""quickstart.py BUILD: what the target quickstart builds is all that `meson install` puts in place."""
import json
import os
import subprocess
import sys


def ninja(build, tool, target):
    return subprocess.run(["ninja", "-C", build, "-t", tool, target], capture_output=True, text=True,
                          check=True).stdout


def main():
    build = sys.argv[1]
    listing = subprocess.run(["meson", "introspect", "--installed", build], capture_output=True, text=True,
                             check=True)
    wanted = {os.path.relpath(path, build) for path in json.loads(listing.stdout)
              if path.startswith(build + os.sep)}  # a link is a bare name
    # The target's own inputs, which -t inputs leaves out, and theirs in turn.
    own = ninja(build, "query", "quickstart").partition("outputs:")[0].splitlines()
    built = {line.strip().lstrip("| ") for line in own}
    built |= set(ninja(build, "inputs", "quickstart").splitlines())
    # Files that the configuration writes exist already, and are no targets.
    targets = {line.rpartition(":")[0] for line in ninja(build, "targets", "all").splitlines()}
    missing = sorted(path for path in wanted - built
                     if path in targets or not os.path.exists(os.path.join(build, path)))
    print("\n".join(f"{path} is installed, and quickstart does not build it" for path in missing)
          or f"{len(wanted)} files of the build are installed, and there after quickstart")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
