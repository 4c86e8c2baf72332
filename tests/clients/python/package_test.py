#!/usr/bin/env python3
"""package_test.py INCLUDE: the Python package emm against the headers, and on the simulated driver."""
import ctypes
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import emm
from emm import _api

INCLUDE = pathlib.Path(sys.argv.pop(1)) / "emm"
NO_NUMBERS = {"EMM_API", "EMM_LAYER_ENTRY", "EMM_LAYER_ENTRY_SYMBOL", "EMM_PLUGIN_ENTRY",
              "EMM_PLUGIN_ENTRY_SYMBOL", "EMM_SLOT_INDEX"}
FROZEN = INCLUDE.parents[1] / "tests/abi/include/emm"
STRUCTS = {"emm_context_info": emm.ContextInfo, "emm_option": _api.Option,
           "emm_stats": emm.Stats, "emm_block_info": _api.BlockInfo,
           "emm_ipc_handle": emm.IpcHandle}


def text_of(header):
    return re.sub(r"/\*.*?\*/", "", (INCLUDE / header).read_text(), flags=re.S)


def functions(text):
    for name, arguments in re.findall(r"EMM_API [^;]*?\b(emm_\w+)\(([^;]*)\);", text):
        yield name, 0 if arguments == "void" else arguments.count(",") + 1


def fields(text, struct):
    body = re.search(r"struct %s \{(.*?)\}(?: %s)?;" % (struct, struct), text, re.S).group(1)
    return re.findall(r"(\w+)(?:\[\w+\])?;", body)


def python(program, **variables):
    return subprocess.run([sys.executable, "-c", program], env={**os.environ, **variables},
                          text=True, capture_output=True, timeout=60, check=False)


class Declarations(unittest.TestCase):
    def test_each_function_of_the_headers_is_declared_with_as_many_arguments(self):
        found = dict(pair for header in ("emm.h", "status.h", "array.h") for pair in functions(text_of(header)))
        self.assertEqual(found, {name: len(of) for name, of in _api.FUNCTIONS.items()})

    def test_structs_have_the_members_of_the_header_in_their_order(self):
        header = text_of("emm.h") + text_of("array.h")
        for name, struct in {"emm_error": _api.LastError, "emm_plugin_info": emm.PluginInfo,
                             "emm_driver_info": emm.DriverInfo, "emm_event": _api.Event,
                             "emm_driver_usage": _api.DriverUsage, "emm_counters": emm.Counters,
                             "emm_device_account": emm.DeviceAccount, "emm_memory_row": _api.MemoryRow,
                             "emm_driver_memory": _api.DriverMemory,
                             "emm_memory_info": emm.MemoryInfo, "emm_frame": _api.Frame,
                             "emm_allocation": _api.Allocation, "emm_array": _api.ArrayInfo,
                             "emm_array_field": _api.ArrayField, "emm_array_layout": _api.ArrayLayout,
                             "emm_dlpack_type": _api.DLPackType}.items():
            self.assertEqual(fields(header, name), [field for field, _ in struct._fields_], name)

    def test_members_lie_where_the_frozen_header_pins_them(self):
        text = (FROZEN / "plugin.h").read_text()
        for name, struct in STRUCTS.items():
            pinned = re.findall(rf"^EMM_AT_\({name}, (\w+), (\d+)\);", text, re.M)
            known = struct._fields_[:len(pinned)]
            self.assertEqual([(field, int(at)) for field, at in pinned],
                             [(field, getattr(struct, field).offset) for field, _ in known], name)

    def test_members_added_since_are_at_the_end_as_in_the_header(self):
        frozen, header = (FROZEN / "plugin.h").read_text(), text_of("plugin.h")
        for name, struct in STRUCTS.items():
            self.assertEqual(fields(header, name), [field for field, _ in struct._fields_], name)
            size, = re.findall(rf"^EMM_SIZE_\({name}, (\d+)\);", frozen, re.M)
            added = struct._fields_[len(fields(frozen, name)):]
            self.assertEqual(int(size) + sum(ctypes.sizeof(kind) for _, kind in added), ctypes.sizeof(struct), name)

    def test_constants_are_those_of_the_headers(self):
        found = {}
        for header in ("status.h", "plugin.h", "emm.h", "array.h"):
            text = text_of(header).replace("\\\n", " ")
            for name, value in re.findall(r"^#define (EMM_\w+) +(.+)$", text, re.M):
                if name not in NO_NUMBERS and "_cast<" not in value:
                    value = re.sub(r"\(emm_stream\)|UINT64_C|EMM_STREAM_OF|(?<=\d)u\b", "", value)
                    found[name] = eval(value.replace("UINTPTR_MAX", "2**64 - 1"), {}, found)
        self.assertEqual({name: getattr(emm, name) for name in emm.__all__ if name.startswith("EMM_")}, found)

    def test_status_codes_have_their_names_and_a_text_each(self):
        codes = {name: getattr(emm, name) for name in emm.__all__ if re.match("EMM_(OK|[ES]_)", name)}
        self.assertEqual({name: name for name in codes},
                         {name: emm.lib.emm_status_name(code).decode() for name, code in codes.items()})
        texts = {emm.lib.emm_status_text(code) for code in codes.values()}
        self.assertEqual(len(texts - {emm.lib.emm_status_text(-1000)}), len(codes))


class Loading(unittest.TestCase):
    def test_the_library_is_the_one_that_was_named(self):
        self.assertEqual(emm.library_path, os.path.realpath(os.environ["EMM_LIBRARY"]))

    def test_a_library_that_is_missing_is_named(self):
        done = python("import emm", EMM_LIBRARY="/nowhere/libemm.so.1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ImportError: libemm cannot be loaded from /nowhere/libemm.so.1", done.stderr)

    def test_numbas_own_driver_is_refused_in_a_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            for module in "cuda/bindings/driver.py", "numba/cuda/cudadrv/driver.py":
                file = pathlib.Path(folder, module)
                file.parent.mkdir(parents=True)
                file.write_text("IpcHandle = object\n")
            pathlib.Path(folder, "numba/cuda/__init__.py").touch()
            path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
            done = python("import emm.numba", PYTHONPATH=path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ImportError: emm.numba: expected the package numba-cuda in numba.cuda's place, found "
                      f"Numba's own {folder}/numba/cuda/cudadrv/driver.py", done.stderr)

    def test_importing_loads_no_driver(self):
        done = python("import emm\nprint('libcuda' in open('/proc/self/maps').read())")
        self.assertEqual(done.stdout, "False\n", done.stderr)


class Calls(unittest.TestCase):
    def test_a_context_of_a_device_gives_and_takes_memory(self):
        context = emm.context_for_device(0)
        ptr = ctypes.c_ulonglong()
        emm.check(emm.lib.emm_memalloc(context, 4096, emm.UNORDERED, ctypes.byref(ptr)))
        self.assertEqual(ptr.value % 256, 0)
        self.assertEqual(emm.stats(context).live_bytes, 4096)
        self.assertRegex(repr(emm.stats(context)), r"^Stats\(live_bytes=4096, live_count=1, .*spilled_bytes=0\)$")
        emm.check(emm.lib.emm_memfree(context, ptr, 4096, emm.UNORDERED))
        free, total = emm.memory_info(context)
        self.assertLessEqual(free, total)

    def test_a_pool_is_paused_and_resumed_by_its_name(self):
        pool = emm.context_named(emm.context_for_device(0), "asleep")
        ptr = ctypes.c_ulonglong()
        emm.check(emm.lib.emm_memalloc(pool, 8 << 20, emm.UNORDERED, ctypes.byref(ptr)))
        self.assertGreaterEqual(emm.pause("asleep"), 8 << 20)
        self.assertEqual(emm.pause("asleep"), 0)
        with self.assertRaises(emm.Error) as raised:
            emm.check(emm.lib.emm_memalloc(pool, 4096, emm.UNORDERED, ctypes.byref(ptr)))
        self.assertEqual(raised.exception.status, emm.EMM_E_PAUSED)
        emm.resume("asleep", keep_copy=True)
        self.assertEqual(emm.stats(pool).paused_bytes, 0)
        emm.pause(discard=True)
        self.assertGreater(emm.stats(pool).paused_bytes, 0)
        emm.resume()
        with self.assertRaises(ValueError):
            emm.pause("nobody")

    @unittest.skipUnless(emm.driver_info().simulated, "it takes two devices")
    def test_a_pause_that_fails_leaves_paused_what_was_paused_before(self):
        done = python("import ctypes, emm\nemm.context_for_device(0)\nfull = emm.context_for_device(1)\n"
                      "names, pools = ('before', 'not'), {}\n"
                      "for name in names:\n"
                      "    pools[name], ptr = emm.context_named(full, name), ctypes.c_ulonglong()\n"
                      "    emm.check(emm.lib.emm_memalloc(pools[name], 1 << 20, emm.UNORDERED, ctypes.byref(ptr)))\n"
                      "emm.pause('before')\n"
                      "emm.check(emm.lib.emm_defer_cleanup_begin(emm.context_for_device(0)))\n"
                      "try:\n    emm.pause()\nexcept emm.Error as error:\n"
                      "    print(error.status == emm.EMM_E_BUSY, *(emm.stats(pools[name]).paused_bytes > 0 for name in names))",
                      EMM_SIM="devices=2")
        self.assertEqual(done.stdout, "True True False\n", done.stderr)

    def test_an_option_of_a_pool_changes_by_its_name(self):
        pool = emm.context_named(emm.context_for_device(0), "tight", "max=64MiB")
        emm.set_option("tight", "max", "16MiB")
        self.assertEqual(emm.memory_info(pool)[1], 16 << 20)
        with self.assertRaisesRegex(emm.Error, "cannot change while it serves"):
            emm.set_option("tight", "growth", "segment")
        with self.assertRaisesRegex(emm.Error, "at least 2MiB, found 1MiB"):
            emm.set_option("tight", "max", "1MiB")
        self.assertEqual(emm.memory_info(pool)[1], 16 << 20)
        emm.set_option("tight", "max", None)
        self.assertGreater(emm.memory_info(pool)[1], 64 << 20)
        with self.assertRaises(ValueError):
            emm.set_option("nobody", "max", "16MiB")

    def test_peaks_of_a_pool_begin_anew(self):
        pool, ptr = emm.context_named(emm.context_for_device(0), "peaks"), ctypes.c_ulonglong()
        for size in 8 << 20, 4096:
            emm.check(emm.lib.emm_memalloc(pool, size, emm.UNORDERED, ctypes.byref(ptr)))
            emm.check(emm.lib.emm_memfree(pool, ptr, size, emm.UNORDERED))
            self.assertEqual(emm.stats(pool).peak_live_bytes, size)
            emm.reset_peaks(pool)
            self.assertEqual(emm.stats(pool).peak_live_bytes, 0)

    def test_a_named_pool_has_a_manager_of_its_own(self):
        context = emm.context_for_device(0)
        pool = emm.context_named(context, "kv-cache", "max=64MiB")
        self.assertEqual(emm.context_named(pool, "kv-cache"), pool)
        self.assertEqual(emm.memory_info(pool)[1], 64 << 20)
        info = emm.ContextInfo()
        emm.check(emm.lib.emm_context_get_info(pool, ctypes.byref(info)))
        self.assertEqual((info.pool, info.group), (b"kv-cache", context))
        with self.assertRaisesRegex(emm.Error, "'64MiB' for 'max', found '32MiB'"):
            emm.context_named(context, "kv-cache", "max=32MiB")

    def test_a_devices_account_has_its_bound_and_rows_by_kind(self):
        done = python("import ctypes, emm\ncontext, ptr = emm.context_for_device(0), ctypes.c_ulonglong()\n"
                      "emm.check(emm.lib.emm_memalloc(context, 4 << 20, emm.UNORDERED, ctypes.byref(ptr)))\n"
                      "account = emm.device_account(0)\n"
                      "print(account.limit_bytes, account.used_bytes, account.managers[emm.EMM_MEMORY_BLOCK].live)",
                      EMM_LIMIT="1GiB", EMM_PLUGIN="passthrough")
        self.assertEqual(done.stdout, f"{1 << 30} {4 << 20} 1\n", done.stderr)
        with self.assertRaises(emm.Error):
            emm.device_account(1000)

    def test_out_of_memory_is_an_error_of_memory_with_emms_sentence(self):
        context = emm.context_for_device(0)
        with self.assertRaises(MemoryError) as raised:
            emm.check(emm.lib.emm_memalloc(context, 1 << 60, emm.UNORDERED,
                                           ctypes.byref(ctypes.c_ulonglong())))
        self.assertEqual(raised.exception.status, _api.EMM_E_OUT_OF_MEMORY)
        self.assertIn(str(1 << 60), str(raised.exception))

    def test_an_error_is_the_same_from_another_process(self):
        with self.assertRaises(emm.Error) as raised:
            emm.context_for_device(77)
        told = pickle.dumps(raised.exception)
        with self.assertRaises(emm.Error):
            emm.context_named(emm.context_for_device(0), "bad name")
        again = pickle.loads(told)
        self.assertEqual((type(again), str(again), vars(again)),
                         (emm.Error, str(raised.exception), vars(raised.exception)))

    def test_a_plugin_that_does_not_load_tells_the_stage(self):
        done = python("import emm\ntry:\n    emm.set_plugin('no-such')\nexcept emm.Error as error:"
                      "\n    print(error.stage)", EMM_PLUGIN="")
        self.assertEqual(done.stdout, "resolve\n", done.stderr)


@unittest.skipUnless(shutil.which("pkg-config"), "there is no pkg-config")
class BuildFolder(unittest.TestCase):
    def test_pkg_config_names_folders_that_a_user_of_it_needs(self):
        build = pathlib.Path(os.environ["EMM_LIBRARY"]).parents[1]
        environment = dict(os.environ, PKG_CONFIG_PATH=str(build / "meson-uninstalled"))

        def folder(name):
            done = subprocess.run(["pkg-config", f"--variable={name}", "emm"], env=environment, text=True,
                                  capture_output=True, check=True)
            return pathlib.Path(done.stdout.strip())

        self.assertTrue((folder("pythondir") / "emm/__init__.py").is_file())
        self.assertTrue((folder("templatedir") / "template-c/plugin.c").is_file())
        self.assertEqual(folder("plugindir").name, "emm")


if __name__ == "__main__":
    unittest.main(verbosity=2)
