"""The links that the command of a wheel makes, since a wheel can hold none."""
import importlib.util
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

COMMAND = pathlib.Path(sys.argv.pop(1))


def load():
    specification = importlib.util.spec_from_file_location("command", COMMAND)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class Links(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.libraries = pathlib.Path(folder.name)
        for name in ("run/libcuda.so.1", "run/libnvidia-ml.so.1", "sim/libcuda.so.1"):
            (self.libraries / name).parent.mkdir(exist_ok=True)
            (self.libraries / name).write_text(name)
        self.command = load()

    def test_each_name_leads_to_the_library_of_its_folder(self):
        self.assertIsNone(self.command.make_links(self.libraries))
        for name in ("run/libcuda.so", "run/libnvidia-ml.so", "sim/libcuda.so"):
            self.assertEqual(os.readlink(self.libraries / name), pathlib.Path(name).name + ".1")
        self.assertEqual(list(self.command.missing_links(self.libraries)), [])

    def test_a_library_that_is_not_there_gets_no_link(self):
        (self.libraries / "run/libnvidia-ml.so.1").unlink()
        self.assertIsNone(self.command.make_links(self.libraries))
        self.assertFalse(os.path.lexists(self.libraries / "run/libnvidia-ml.so"))

    def test_a_link_that_another_process_makes_first_is_as_good(self):
        with mock.patch.object(pathlib.Path, "symlink_to", side_effect=FileExistsError):
            self.assertIsNone(self.command.make_links(self.libraries))

    def test_a_folder_that_may_not_be_written_is_named_with_what_follows(self):
        with mock.patch.object(pathlib.Path, "symlink_to", side_effect=PermissionError(13, "Permission denied")):
            problem = self.command.make_links(self.libraries)
        self.assertEqual(problem, f"{self.libraries}/run/libcuda.so cannot be made (Permission denied): a program that opens "
                                  "libcuda.so runs without emm")


if __name__ == "__main__":
    unittest.main()
