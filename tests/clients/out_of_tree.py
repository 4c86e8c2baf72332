"""A folder of its own for projects that are built against an installed emm and know nothing else."""
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile


class Failure(Exception):
    pass


def expect(condition, sentence):
    if not condition:
        raise Failure(sentence)


def run(command, **settings):
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    if done.returncode != 0:
        raise Failure(f"{shlex.join(command)}: exit status {done.returncode}\n"
                      f"{done.stdout}{done.stderr}")
    return done.stdout


def clean_environment(**more):
    """This process's environment without what could point at emm's source or build tree."""
    dropped = ("EMM_", "PKG_CONFIG", "LD_LIBRARY_PATH", "LD_PRELOAD", "MESON", "CFLAGS", "CXXFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, **more}


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Workshop:
    """Builds projects with the compilers and the sanitizers that emm was built with."""

    def __init__(self, meson, cc, cxx, sanitize):
        self.meson = shlex.split(meson)
        self.environment = clean_environment(CC=cc, CXX=cxx)
        self.settings = [f"-Db_sanitize={sanitize}", "-Db_lundef=false"]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="emm-clients-"))

    def build(self, project, environment, *settings, test=True):
        """Copies `project` here, so that it has no way back, and builds and tests it."""
        source = self.folder / project.name
        shutil.copytree(project, source, symlinks=True)
        build = source / "build"
        environment = {**self.environment, **environment}
        run(self.meson + ["setup", build, source, *self.settings, *settings], env=environment)
        run(self.meson + ["compile", "-C", build], env=environment)
        if test:
            run(self.meson + ["test", "-C", build], env=environment)
        return build

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def main(test, workshop):
    """Runs `test`; what it built stays for inspection if it fails."""
    try:
        test(workshop)
    except Failure as failure:
        print(failure)
        print(f"kept for inspection: {workshop.folder}")
        return 1
    workshop.remove()
    return 0
