"""The command `emm` of a wheel: becomes the program that lies in this package."""
import os
import pathlib
import sys

NATIVE = pathlib.Path(__file__).resolve().parent / "native"
# A wheel can hold no links. Programs open both names, and must get the same library.
LINKED = {"run": ("libcuda.so", "libnvidia-ml.so"), "sim": ("libcuda.so",)}


def missing_links(libraries):
    for folder, names in LINKED.items():
        for name in names:
            link = libraries / folder / name
            if not link.exists() and (libraries / folder / f"{name}.1").exists():
                yield link


def make_links(libraries):
    """Makes the links that are missing; returns why one could not be made, or None."""
    for link in missing_links(libraries):
        try:
            link.symlink_to(f"{link.name}.1")
        except FileExistsError:
            pass  # another process was faster
        except OSError as error:
            return f"{link} cannot be made ({error.strerror}): a program that opens {link.name} runs without emm"
    return None


def main():
    problem = make_links(NATIVE / "lib/emm")
    if problem and sys.argv[1:2] == ["run"]:
        print(f"emm: {problem}", file=sys.stderr)
    program = NATIVE / "bin/emm"
    os.execv(program, [str(program), *sys.argv[1:]])
