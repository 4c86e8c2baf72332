#!/usr/bin/env python3
"""torch_backend_test.py: how emm.torch makes and finds its library, with a stand-in for PyTorch."""
import os
import pathlib
import stat
import sys
import tempfile
import types
import unittest
import unittest.mock
import warnings


class StandIn(types.ModuleType):
    """The parts of PyTorch that emm.torch uses before its library is loaded."""

    def __init__(self, folder):
        super().__init__("torch")
        self.__file__ = str(folder / "torch/__init__.py")
        self.__version__ = "2.99.0"
        self.version = types.SimpleNamespace(cuda="13.0", git_version="abc")
        self._C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
        self.stats = {}
        self.used = []
        memory = types.SimpleNamespace(CUDAPluggableAllocator=lambda *arguments: self,
                                       change_current_allocator=self.change)
        self.cuda = types.SimpleNamespace(memory=memory, device_count=lambda: 1,
                                          memory_stats=lambda device: self.stats)

    def allocator(self):
        return unittest.mock.MagicMock()

    def change(self, allocator):
        if self.stats is None or self.stats:
            raise RuntimeError("Can't swap an already initialized allocator")
        self.used.append(allocator)


ROOT = tempfile.TemporaryDirectory()
FOLDER = pathlib.Path(ROOT.name)
torch = sys.modules["torch"] = StandIn(FOLDER)

import emm.torch
from emm import _torch_backend as backend

HEADERS = ("torch/include/c10/cuda/CUDACachingAllocator.h", "cuda/include/cuda_runtime_api.h",
           "cuda/include/crt/host_config.h")


class Making(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=FOLDER)
        variables = {"XDG_CACHE_HOME": self.folder.name, "CUDA_HOME": str(FOLDER / "cuda")}
        for patch in (unittest.mock.patch.dict(os.environ, variables),
                      unittest.mock.patch.object(emm.torch, "_used", None),
                      unittest.mock.patch.object(emm.torch, "_pinned", None)):
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(self.folder.cleanup)
        for header in HEADERS:
            (FOLDER / header).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / header).touch()
        torch.stats, torch.used = {}, []

    def compiler(self, text):
        """A program that stands for one."""
        path = pathlib.Path(self.folder.name, "compiler")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        os.environ["CXX"] = str(path)

    def reason(self):
        with self.assertRaises(backend.Unavailable) as raised:
            backend.library()
        return str(raised.exception)

    def test_what_the_compiler_makes_is_kept_and_found_again(self):
        self.compiler('while [ "$1" != -o ]; do shift; done; echo made >> "$2"')
        path = backend.library()
        self.assertEqual(path.read_text(), "made\n")
        self.assertEqual(backend.library(), path)
        self.assertEqual(path.read_text(), "made\n")
        self.assertEqual(stat.S_IMODE(path.parent.stat().st_mode), 0o700)
        self.assertEqual([each for each in path.parent.iterdir() if each.is_dir()], [])

    def test_another_pytorch_gets_another_library(self):
        name = backend.file_name()
        with unittest.mock.patch.object(torch, "__version__", "2.99.1"):
            self.assertNotEqual(backend.file_name(), name)
        torch._C._GLIBCXX_USE_CXX11_ABI = False
        self.assertNotEqual(backend.file_name(), name)
        torch._C._GLIBCXX_USE_CXX11_ABI = True

    def test_a_compiler_that_fails_is_told_with_its_first_error_and_nothing_is_kept(self):
        self.compiler("echo 'in file x:' >&2; echo 'x.h:1: error: no such type' >&2; exit 1")
        self.assertIn("compiler failed: x.h:1: error: no such type", self.reason())
        self.assertEqual(list(pathlib.Path(self.folder.name, "emm").glob("*.so")), [])

    def test_what_is_missing_is_named(self):
        self.compiler("exit 1")
        (FOLDER / HEADERS[0]).unlink()
        self.assertEqual(self.reason(), "c10/cuda/CUDACachingAllocator.h is not installed")
        with unittest.mock.patch.dict(os.environ, {"CXX": "", "PATH": "/nowhere"}):
            (FOLDER / HEADERS[0]).touch()
            self.assertEqual(self.reason(), "no C++ compiler is installed")
        with unittest.mock.patch.object(torch.version, "cuda", None):
            self.assertEqual(self.reason(), "this PyTorch is built without CUDA")

    def test_what_the_runtimes_package_leaves_out_is_taken_from_elsewhere(self):
        runtime = FOLDER / "nvidia/cu13"
        (runtime / "include").mkdir(parents=True)
        (runtime / "include/cuda_runtime_api.h").touch()
        with unittest.mock.patch.object(backend, "mapped",
                                        lambda *names: [runtime / "lib/libcudart.so.13"]):
            self.assertEqual(backend.cuda_folders(), [runtime / "include", FOLDER / "cuda/include"])
            (runtime / "include/crt").mkdir()
            (runtime / "include/crt/host_config.h").touch()
            self.assertEqual(backend.cuda_folders(), [runtime / "include"])

    def test_a_cache_that_others_may_write_to_is_refused(self):
        folder = pathlib.Path(self.folder.name, "emm")
        folder.mkdir()
        folder.chmod(0o777)
        self.assertIn("others may write there", self.reason())

    def test_a_cache_that_cannot_be_made_is_named(self):
        os.environ["XDG_CACHE_HOME"] = "/dev/null"
        self.assertIn("the cache cannot be used", self.reason())

    def test_a_library_that_does_not_load_leaves_the_pluggable_allocator_and_a_warning(self):
        self.compiler('while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"')
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            emm.torch.use()
            emm.torch.use()
        self.assertEqual(len(torch.used), 1)
        warning, = seen
        self.assertIn("emm.torch uses CUDAPluggableAllocator", str(warning.message))
        self.assertIn("does not load", str(warning.message))
        self.assertEqual(warning.filename, __file__)

    def test_without_a_library_pinned_memory_is_refused_with_the_reason(self):
        self.compiler("exit 1")
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "pinned memory: .*compiler failed: it said nothing"):
                emm.torch.use_pinned_memory()

    def test_pinned_memory_comes_from_one_pool(self):
        with unittest.mock.patch.object(backend, "install_pinned") as install:
            emm.torch.use_pinned_memory()
            emm.torch.use_pinned_memory()
            install.assert_called_once_with(None, None)
            with self.assertRaisesRegex(ValueError, "which serves already"):
                emm.torch.use_pinned_memory("another")
            install.assert_called_once()

    def test_what_came_before_the_pluggable_allocator_is_told(self):
        for stats, words in (({"allocation.all.allocated": 3}, "allocated memory on a GPU."),
                             ({"allocation.all.allocated": 0}, "has initialized CUDA")):
            torch.stats = stats
            with self.assertRaisesRegex(RuntimeError, words):
                emm.torch.use(pluggable=True)
        torch.stats = {}
        emm.torch.use(pluggable=True)  # a failure can be made good
        self.assertEqual(len(torch.used), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
