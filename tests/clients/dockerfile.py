#!/usr/bin/env python3
"""dockerfile.py DOCKERFILE CONTEXT ROOT: carries out a Dockerfile where there is no docker.

As root. Each stage is a copy of the folder ROOT, an unpacked system that stands for every image that FROM names, and each RUN is a
command in it (chroot), with the caller's environment and ENV's. Instructions other than those of tools/docker are refused.
"""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WITHOUT_EFFECT = ("ENTRYPOINT", "CMD")  # they set the program that a container starts
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def instructions_of(text):
    """[(instruction, what follows it)], with its lines joined and without comments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.strip().split(None, 1)) for line in joined.splitlines() if line.strip()]


def ignored_by(dockerfile, context):
    """The names that copytree() leaves out. A docker pattern applies to names in the context's own folder."""
    patterns = pathlib.Path(f"{dockerfile}.dockerignore")
    matching = shutil.ignore_patterns(*patterns.read_text().split() if patterns.is_file() else ())
    return lambda folder, names: matching(folder, names) if pathlib.Path(folder) == context else ()


def put(source, target, ignore=None):
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=ignore)
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


class Stage:
    def __init__(self, root, folder):
        self.root = folder
        self.environment = {}
        self.folder = "/"
        subprocess.run(["cp", "-a", root, folder], check=True)

    def expand(self, text):
        environment = {"PATH": USUAL_PATH, **self.environment}
        return re.sub(r"\$\{?(\w+)\}?", lambda found: environment.get(found[1], ""), text)

    def set_variable(self, words):
        name, value = words.split("=", 1)
        self.environment[name] = self.expand(value)

    def copy(self, words, context, stages, ignore):
        *sources, target = words.split()
        if sources[0].startswith("--from="):
            context, ignore = stages[sources.pop(0).split("=")[1]].root, None
        for pattern in sources:
            found = sorted(context.glob(pattern.lstrip("/"))) if pattern != "." else [context]
            if not found:
                raise SystemExit(f"COPY {words}: expected {pattern} in {context}, found none")
            for source in found:
                put(source, self.root / target.lstrip("/"), ignore)

    def run(self, command):
        with contextlib.ExitStack() as mounts:
            for name in ("proc", "dev"):
                subprocess.run(["mount", "--bind", f"/{name}", self.root / name], check=True)
                mounts.callback(subprocess.run, ["umount", self.root / name], check=True)
            subprocess.run(["chroot", self.root, "/bin/sh", "-c", f"cd {self.folder} && {command}"], check=True,
                           env={**os.environ, "PATH": USUAL_PATH, **self.environment})


def carry_out(dockerfile, context, root, work):
    ignore = ignored_by(dockerfile, context)
    stages = {}
    stage = None
    for instruction, words in instructions_of(dockerfile.read_text()):
        print(instruction, words, flush=True)
        if instruction == "FROM":
            name = words.split()[2] if " AS " in words else str(len(stages))
            stage = stages[name] = Stage(root, work / name)
        elif instruction == "RUN":
            stage.run(words)
        elif instruction == "COPY":
            stage.copy(words, context, stages, ignore)
        elif instruction == "ENV":
            stage.set_variable(words)
        elif instruction == "WORKDIR":
            stage.folder = words
        elif instruction != "ARG" and instruction not in WITHOUT_EFFECT:
            raise SystemExit(f"{dockerfile}: {instruction} is not known here")


def main(dockerfile, context, root):
    dockerfile = pathlib.Path(dockerfile)
    with tempfile.TemporaryDirectory(prefix="emm-docker-", dir=pathlib.Path(root).resolve().parent) as work:
        try:
            carry_out(dockerfile, pathlib.Path(context).resolve(), root, pathlib.Path(work))
        except subprocess.CalledProcessError as failure:
            print(f"{dockerfile.name}: exit status {failure.returncode} of {failure.cmd[-1]}")
            return 1
    print(f"{dockerfile.name} makes an image")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
