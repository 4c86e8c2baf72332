#!/usr/bin/env python3
"""recipes.py ROOT [hadolint|rattler-build]: the recipes in tools/ fit what they build.

Without a tool's name: Meson has each option that a recipe gives, tools/ each script that a Dockerfile runs, versions are those of
meson.build. With one: what that tool says of the recipes. It is in the environment .cache/recipes, on PATH, or a module of this Python;
the test is skipped where it is in none.
"""
import pathlib
import re
import shutil
import subprocess
import sys

SKIP = 77
CONDA = "tools/conda/recipe.yaml"
SPACK = "tools/spack/spack_repo/emm/packages/emm/package.py"
SPACK_PARENT = re.compile(r"parents\[(\d+)\]")
BUILT_IN = {"buildtype", "libdir", "prefix", "unity", "unity_size", "default_library"}
OPTION = re.compile(r"-D(\w+)=")
# The name of Meson's requirement in each recipe.
MESON = {CONDA: r"- meson >=([\d.]+)", SPACK: r'depends_on\("meson@([\d.]+):"'}
RENDER = """
import sys
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig
kinds = {"c_compiler": ["gcc"], "cxx_compiler": ["gxx"], "c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"],
         "python": ["3.12.* *_cpython"]}
for platform in ("linux-64", "linux-aarch64"):
    made = Stage0Recipe.from_file(sys.argv[1]).render(VariantConfig(kinds), RenderConfig(PlatformConfig(target_platform=platform)))
    assert len(made) == 1, (platform, made)
"""


def dockerfiles(root):
    return sorted(str(path.relative_to(root)) for path in root.glob("tools/docker/*Dockerfile"))


def option_faults(name, text, known):
    for option in sorted(set(OPTION.findall(text)) - known):
        yield f"{name}: gives Meson -D{option}, which meson_options.txt lacks"


def version_faults(texts, meson_build):
    version = re.search(r"\bversion: '([^']+)'", meson_build)[1]
    wanted = re.search(r"meson_version: '>= ([\d.]+)'", meson_build)[1]
    found = re.search(r'version: "([^"]+)"', texts[CONDA])[1]
    if found != version:
        yield f"{CONDA}: expected version {version}, found {found}"
    for name, pattern in MESON.items():
        found = re.search(pattern, texts[name])
        if not found or found[1] != wanted:
            yield f"{name}: expected Meson {wanted} or later, found {found[1] if found else 'none'}"


def source_faults(root, texts):
    """Where each recipe looks for the sources."""
    if (root / CONDA).parent.joinpath(re.search(r"path: (\S+)", texts[CONDA])[1]).resolve() != root:
        yield f"{CONDA}: its source is not the folder of meson.build"
    if (root / SPACK).parents[int(SPACK_PARENT.search(texts[SPACK])[1])] != root:
        yield f"{SPACK}: its clone is not the folder of meson.build"


def script_faults(root, name, text):
    """The tools that a RUN starts are there, as programs."""
    for command in re.findall(r"\btools/[\w-]+(?=[ \n])", "\n".join(re.findall(r"RUN (?:.*\\\n)*.*", text))):
        if not (root / command).is_file():
            yield f"{name}: runs {command}, which is not there"


def faults(root):
    texts = {name: (root / name).read_text() for name in (CONDA, SPACK, *dockerfiles(root))}
    known = BUILT_IN | set(re.findall(r"^option\('(\w+)'", (root / "meson_options.txt").read_text(), re.M))
    for name, text in texts.items():
        yield from option_faults(name, text, known)
        yield from script_faults(root, name, text)
    yield from version_faults(texts, (root / "meson.build").read_text())
    yield from source_faults(root, texts)


def fetched(root, name):
    path = root / ".cache/recipes/bin" / name
    return str(path) if path.exists() else shutil.which(name)


def run_hadolint(root):
    tool = fetched(root, "hadolint")
    return [tool, *dockerfiles(root)] if tool else None


def render(root):
    for python in filter(None, (fetched(root, "python"), sys.executable)):
        if subprocess.run([python, "-c", "import rattler_build"], capture_output=True, check=False).returncode == 0:
            return [python, "-c", RENDER, CONDA]
    return None


def lint(root, tool):
    command = {"hadolint": run_hadolint, "rattler-build": render}[tool](root)
    if not command:
        print(f"skipped: {tool} is not installed")
        return SKIP
    return subprocess.run(command, cwd=root, check=False).returncode


def main(root, tool=None):
    root = pathlib.Path(root).resolve()
    if tool:
        return lint(root, tool)
    found = list(faults(root))
    print("\n".join(found) or "the recipes fit what they build")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
