#!/usr/bin/env python3
"""snippets_test.py README: each block of Python in it runs. Skipped by name where a client is missing.

What imports a library that has a CUDA runtime of its own needs a GPU; the others run on any driver.
EMM_TEST_NUMBA names a folder that is put on PYTHONPATH, for what an installation of Numba lacks.
"""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

import emm

ENVIRONMENT = {**os.environ, "PYTHONPATH": ":".join(
    filter(None, [os.environ.get("EMM_TEST_NUMBA"), os.environ.get("PYTHONPATH")]))}
README = pathlib.Path(sys.argv.pop(1))
NEED_A_GPU = {"cupy", "numba", "rmm", "torch"}


def snippets():
    """Pairs of the heading that a block stands under and the block."""
    heading = ""
    for part in re.split(r"^(#+ [^\n]*$|```python\n.*?^```$)", README.read_text(), flags=re.M | re.S):
        if part.startswith("#"):
            heading = part.lstrip("# ")
        elif part.startswith("```python"):
            yield heading, part[len("```python\n"):-len("```")]


def run(program, **variables):
    environment = {name: value for name, value in {**ENVIRONMENT, **variables}.items() if value is not None}
    return subprocess.run([sys.executable, "-c", program], text=True, capture_output=True,
                          timeout=100, env=environment, check=False)


def obstacle(program):
    """Why a block cannot run here, or None."""
    clients = set(re.findall(r"^(?:import|from) (\w+)", program, re.M)) - {"emm"}
    for name in sorted(clients):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    if clients & NEED_A_GPU:
        try:
            if emm.driver_info().simulated:
                return "the driver is simulated"
        except emm.Error as error:
            return str(error)
    # A Numba may be older than the NumPy beside it, and use names that NumPy no longer has.
    if "numba" in clients and run("import numba.cuda.np.arrayobj").returncode != 0:
        return "numba does not work with this NumPy"
    return None


class Snippets(unittest.TestCase):
    def test_there_are_some(self):
        self.assertGreater(len(list(snippets())), 3)

    def test_the_first_one_chooses_a_plugin_and_leaves_that_of_the_environment_without_a_warning(self):
        _, program = next(snippets())
        for name in (None, "passthrough"):
            done = run(program, EMM_PLUGIN=name)
            self.assertEqual((done.stdout.split()[:1], done.stderr), ([name or "pool"], ""))


def add(number, heading, program):
    reason = obstacle(program)

    @unittest.skipIf(reason, reason)
    def test(self):
        done = run(program)
        self.assertEqual(done.returncode, 0, done.stderr)

    setattr(Snippets, f"test_{number}_{re.sub('[^a-z0-9]+', '_', heading.lower())}", test)


for index, found in enumerate(snippets(), start=1):
    add(index, *found)

if __name__ == "__main__":
    unittest.main(verbosity=2)
