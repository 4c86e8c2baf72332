"""Each check in this folder can fail: every test hands it a small tree with one thing wrong."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import cited
import depends
import descriptors
import format as layout
import layers
import names
import package_versions
import recipes
import runtime
import symbols
import tree
import words

GOOD = {"meson.build": "", "meson_options.txt": "", "README.md": "", "LICENSE": "",
        "include/emm/emm.h": "", "lib/README.md": "", "plugins/README.md": "",
        "tests/README.md": "", "tools/README.md": "", "lib/api/memory.cpp": "",
        "lib/core/record/queue.h": "", "lib/loader/spec.h": "", "lib/driver/driver.cpp": "",
        "lib/observe/log.h": ""}


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        for name, text in GOOD.items():
            self.write(name, text)

    def write(self, name, text):
        path = pathlib.Path(self.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_check(self, script):
        return subprocess.run([sys.executable, str(HERE / script), self.root],
                              capture_output=True, text=True, check=False)


class Cited(unittest.TestCase):
    FILES = {"unit/a_test.cpp": 'TEST_CASE("memory goes "\n          "back", "[sim]") {',
             "unit/api/array_test.c": '{"a shape is whole", shapes},',
             "process/array_test.py": "def test_records_have_fields(self):"}

    def found(self, *rows):
        return list(cited.faults("\n".join(rows), self.FILES.get))

    def test_names_that_are_there_pass(self):
        self.assertEqual(self.found("| promise | `unit/a_test.cpp`: memory goes back. Prose; more |",
                                    "### The CUDA Array Interface", "| rule | test |",
                                    "| shape | a shape is whole; P records have fields |",
                                    "| other | does not apply: no reason |"), [])

    def test_a_name_and_a_file_that_are_not_there_are_named(self):
        self.assertEqual(self.found("| promise | `unit/a_test.cpp`: memory goes back; it stays |",
                                    "| promise | `unit/b_test.cpp`: it stays |"),
                         ["unit/a_test.cpp: has no test 'it stays'", "unit/b_test.cpp: is not there"])
        for name in ("a shape is round", "records have fields", "P a shape is whole"):
            self.assertEqual(self.found("### The CUDA Array Interface", f"| shape | {name} |"),
                             [f"the tests of arrays: there is none '{name}'"])

    def test_names_of_mesons_tests_are_looked_up(self):
        page = "| fork | `meson test`: forks, eager; forks, lazy. Prose; more |"
        self.assertEqual(list(cited.unknown(page, {"forks, eager", "forks, lazy"})), [])
        self.assertEqual(list(cited.unknown(page, {"forks, lazy"})), ["Meson has no test 'forks, eager'"])

    def test_a_promise_without_a_test_is_named(self):
        head = ["| fault | promise | test |", "|---|---|---|"]
        good = ["| a | it ends | `unit/a_test.cpp`: memory goes back |", "| b | it stays | `meson test`: forks |",
                "| c | it hangs | no test: an upstream fault |"]
        other = ["", "| word | meaning |", "|---|---|", "| a | b |"]
        self.assertEqual(list(cited.unproved("\n".join(head + good + other))), [])
        self.assertEqual(list(cited.unproved("\n".join(head + good + ["| d | it goes | tests/unit |"] + other))),
                         ["no test is named, nor is it said that there is none: d"])


class Depends(unittest.TestCase):
    MADE = {"program": {"lib/a.so", "bin/program"}, "plugin": {"lib/plugin.so"}}

    def found(self, depends_on, *command, **variables):
        test = {"name": "t", "cmd": list(command), "env": variables, "depends": depends_on}
        return list(depends.faults("/b", [test], {"lib/a.so", "bin/program", "lib/plugin.so"}, self.MADE.get))

    def test_what_a_target_is_made_with_and_what_the_build_does_not_make_pass(self):
        self.assertEqual(self.found(["program"], "/b/bin/program", "/s/test.py", "/b/log.txt", LIB="/x:/b/lib/a.so"), [])
        self.assertEqual(self.found([], "/s/test.py"), [])

    def test_a_file_that_is_named_and_not_made_is_told(self):
        for words, variables in ((["/b/lib/plugin.so"], {}), (["x"], {"EMM_PLUGIN": "/b/lib/../lib/plugin.so:max=1"})):
            self.assertEqual(self.found(["program"], *words, **variables),
                             ["t: names lib/plugin.so, and does not depend on it"])


class Descriptors(Tree):
    def found(self, text):
        self.write("lib/driver/driver.cpp", text)
        return list(descriptors.faults(self.root))

    def test_what_is_close_on_exec_passes(self):
        self.assertEqual(self.found(
            "int a = ::open(path, O_RDWR | O_CLOEXEC), b = socket(1, SOCK_CLOEXEC | 5, 0);\n"
            "constexpr int at_once = O_NONBLOCK | O_CLOEXEC;\n"
            "int c = open(path, O_RDONLY | at_once), d = accept4(a, 0, 0, SOCK_CLOEXEC);\n"
            'FILE *e = fopen(path, "re"); // open(path, O_RDWR)\n'
            "emm_status open(const Found &found); bool known = file.open(found, O_RDWR);\n"
            "Spool::open(path, reason); dup2(2, 1); posix_fallocate(a, 0, 1);\n"), [])
        self.assertEqual(self.run_check("descriptors.py").returncode, 0)

    def test_each_way_without_the_flag_is_named(self):
        for text in ("int a = open(path, O_RDONLY);", "return open(path, O_RDONLY);",
                     "a = ::openat(b, path,\n O_RDONLY);", "int a = socket(1, SOCK_STREAM, 0);",
                     "if (accept(a, 0, 0) < 0)", "x = dup(1);", "pipe(ends)", "pipe2(ends, 0)",
                     "recvmsg(a, &header, 0)", 'memfd_create("x", 0)', 'fopen(path, "r")',
                     "std::ifstream file(path);", 'FILE *a = popen("ls", "r");',
                     "std::make_shared<spdlog::sinks::basic_file_sink_mt>(path)"):
            found = self.found(f"\n{text}\n")
            self.assertEqual(len(found), 1, text)
            self.assertIn("lib/driver/driver.cpp:2: ", found[0])
        self.assertEqual(self.run_check("descriptors.py").returncode, 1)


class Recipes(unittest.TestCase):
    BUILD = "project('x', version: '0.2.0', meson_version: '>= 1.0')"
    TEXTS = {recipes.CONDA: 'version: "0.2.0"\n- meson >=1.0\n', recipes.SPACK: 'depends_on("meson@1.0:", type="build")'}

    def test_versions_are_those_of_the_build(self):
        self.assertEqual(list(recipes.version_faults(self.TEXTS, self.BUILD)), [])
        for build in (self.BUILD.replace("0.2.0", "0.3.0"), self.BUILD.replace("1.0", "1.2")):
            self.assertTrue(list(recipes.version_faults(self.TEXTS, build)))

    def test_an_option_that_meson_lacks_is_named(self):
        self.assertEqual(list(recipes.option_faults("r", "-Dtests=false -Dlibdir=lib", {"tests", "libdir"})), [])
        self.assertEqual(list(recipes.option_faults("r", "-Dtest=false", {"tests"})),
                         ["r: gives Meson -Dtest, which meson_options.txt lacks"])

    def test_a_script_that_is_not_there_is_named(self):
        root = HERE.parents[1]
        self.assertEqual(list(recipes.script_faults(root, "d", "RUN a && \\\n    tools/wheel out\n")), [])
        self.assertEqual(list(recipes.script_faults(root, "d", "RUN a && \\\n    tools/whee out\n")),
                         ["d: runs tools/whee, which is not there"])


class Layers(Tree):
    def found(self, name, text):
        self.write(name, text)
        return list(layers.faults(self.root))

    def test_a_good_tree_passes(self):
        self.assertEqual(self.found("lib/api/memory.cpp", '#include "core/record/queue.h"\n'), [])
        self.assertEqual(self.run_check("layers.py").returncode, 0)

    def test_an_include_of_a_higher_layer_is_named(self):
        self.assertEqual(self.found("lib/loader/load.cpp", '#include "core/record/queue.h"\n'),
                         ["lib/loader/load.cpp: loader includes core/record/queue.h of the layer "
                          "above it, core"])
        self.assertEqual(self.run_check("layers.py").returncode, 1)

    def test_a_detour_through_the_folder_above_is_seen(self):
        self.assertEqual(len(self.found("lib/observe/log.cpp", '#include "../api/api.h"\n')), 0)
        self.write("lib/api/api.h", "")
        self.assertEqual(len(list(layers.faults(self.root))), 1)

    def test_cuda_headers_are_for_the_driver_layer_alone(self):
        self.assertEqual(self.found("lib/driver/driver.cpp", "#include <cuda.h>\n"), [])
        self.assertIn("only lib/driver may", self.found("lib/core/record/a.cpp", "#include <cuda.h>\n")[0])

    def test_a_public_header_includes_no_cuda_header(self):
        self.assertEqual(len(self.found("include/emm/emm.h", "#include <cuda.h>\n")), 1)

    def test_libraries_are_opened_in_three_layers_only(self):
        self.assertEqual(self.found("lib/loader/open.cpp", "dlopen(path, flags);\n"), [])
        self.assertEqual(len(self.found("lib/api/open.cpp", "dlopen(path, flags);\n")), 1)

    def test_a_source_outside_the_layers_is_named(self):
        self.assertIn("no layer", self.found("lib/utils/text.h", "")[0])

    def test_a_layer_beside_is_as_little_used_as_one_above(self):
        self.write("lib/sharing/sharing.h", "")
        self.assertEqual(self.found("lib/monitor/server.cpp", '#include "sharing/sharing.h"\n'),
                         ["lib/monitor/server.cpp: monitor includes sharing/sharing.h of the layer above it, sharing"])

    def test_an_include_of_a_higher_room_is_named(self):
        self.write("lib/core/lifecycle/reset.h", '#include "core/record/queue.h"\n')
        self.assertEqual(self.found("lib/core/record/queue.cpp", '#include "core/lifecycle/reset.h"\n'),
                         ["lib/core/record/queue.cpp: record includes core/lifecycle/reset.h of the room above it, "
                          "lifecycle", "lib: these units include each other: core/lifecycle/reset, core/record/queue"])

    def test_a_file_beside_the_rooms_is_above_them_or_belongs_to_none(self):
        self.write("lib/sharing/handle/stamp.h", "")
        self.assertEqual(self.found("lib/sharing/sharing.cpp", '#include "sharing/handle/stamp.h"\n'), [])
        self.assertIn("no room of core", self.found("lib/core/memory.h", "")[0])

    def test_units_that_include_each_other_are_named_however_many_are_between_them(self):
        self.write("lib/observe/text.h", '#include "observe/log.h"\n')
        self.write("lib/observe/log.cpp", '#include "observe/log.h"\n#include "observe/file.h"\n')
        self.assertEqual(self.found("lib/observe/file.h", "// nothing\n"), [])
        self.assertEqual(self.found("lib/observe/file.cpp", '#include "observe/text.h"\n'),
                         ["lib: these units include each other: observe/file, observe/log, observe/text"])

    def test_what_the_layer_above_defines_is_not_declared_below_it(self):
        self.assertEqual(self.found("lib/core/record/a.h", "namespace emm::driver {\nvoid load();\n}\n"), [])
        self.assertEqual(self.found("lib/core/record/a.h", "namespace emm::sharing {\nvoid end();\n}\n"),
                         ["lib/core/record/a.h: core declares what is sharing's, of the layer above it"])


class PoolLayers(Tree):
    def found(self, name, text):
        self.write(name, text)
        return list(layers.pool_faults(self.root))

    def setUp(self):
        super().setUp()
        for name in ("heap/block.h", "order/stream.h", "manager.h"):
            self.write("plugins/pool/" + name, "")

    def test_the_manager_may_include_every_folder(self):
        self.assertEqual(self.found("plugins/pool/free.cpp", '#include "heap/block.h"\n#include "order/stream.h"\n'),
                         [])

    def test_an_include_of_a_higher_folder_is_named(self):
        self.assertEqual(self.found("plugins/pool/heap/heap.cpp", '#include "order/stream.h"\n'),
                         ["plugins/pool/heap/heap.cpp: heap includes order/stream.h of the layer above it, order"])
        self.assertEqual(self.run_check("layers.py").returncode, 1)

    def test_the_manager_is_above_every_folder(self):
        for name in ('"manager.h"', '"../manager.h"'):
            self.assertEqual(len(self.found("plugins/pool/order/stream.cpp", f"#include {name}\n")), 1)

    def test_the_heap_knows_no_driver(self):
        for name in ("<cuda.h>", "<emm/cuda.h>"):
            self.assertIn("knows no driver", self.found("plugins/pool/heap/heap.cpp", f"#include {name}\n")[0])

    def test_events_are_recorded_in_order_alone(self):
        call = "driver.cuEventRecord(event, stream);\n"
        self.assertEqual(self.found("plugins/pool/order/events.cpp", call), [])
        self.assertEqual(self.found("plugins/pool/free.cpp", call),
                         ["plugins/pool/free.cpp: calls cuEventRecord, which only order/ may"])

    def test_an_entry_is_named_where_it_is_looked_up(self):
        self.assertEqual(self.found("plugins/pool/cuda/driver.h", "EMM_POOL_REQUIRED(cuEventRecord);\n"), [])

    def test_a_folder_outside_the_layers_is_named(self):
        self.assertIn("no layer", self.found("plugins/pool/utils/text.h", "")[0])


class House(Tree):
    def found(self, name=None, text=""):
        if name:
            self.write(name, text)
        return list(tree.faults(self.root))

    def test_a_good_tree_passes(self):
        self.assertEqual(self.found(), [])
        self.assertEqual(self.run_check("tree.py").returncode, 0)

    def test_a_new_folder_at_the_top_level_is_named(self):
        self.assertEqual(self.found("docs/page.md"), ["docs: does not belong at the top level"])
        self.assertEqual(self.run_check("tree.py").returncode, 1)

    def test_what_the_top_level_lacks_is_named(self):
        pathlib.Path(self.root, "LICENSE").unlink()
        self.assertEqual(self.found(), ["LICENSE: is missing at the top level"])

    def test_a_folder_without_a_readme_is_named(self):
        pathlib.Path(self.root, "plugins/README.md").unlink()
        self.write("plugins/meson.build", "")
        self.assertEqual(self.found(), ["plugins/README.md: is missing"])

    def test_a_file_of_more_than_500_lines_is_named_unless_it_is_frozen(self):
        self.assertEqual(self.found("tests/abi/long.h", "\n" * 501), []) # frozen
        self.assertEqual(len(self.found("tests/long.cpp", "\n" * 501)), 1)
        pathlib.Path(self.root, "tests/long.cpp").unlink()
        self.assertEqual(self.found("lib/core/long.cpp", "\n" * 500), [])
        self.assertEqual(len(self.found("lib/core/long.cpp", "\n" * 501)), 1)

    def test_a_file_without_a_last_line_end_is_named(self):
        self.assertEqual(len(self.found("lib/core/a.cpp", "int a;")), 1)

    def test_a_note_of_unfinished_work_is_named(self):
        for word in tree.UNFINISHED:
            self.assertEqual(self.found("lib/core/a.cpp", f"// {word}\n"),
                             [f"lib/core/a.cpp: says {word}"])


class Words(unittest.TestCase):
    def test_a_thing_as_subject_and_the_fields_term_pass(self):
        self.assertEqual(list(words.faults("lib/a.h", "// The caller delegates to its gateway.")), [])

    def test_a_vague_subject_and_a_private_word_are_named_with_their_line(self):
        found = list(words.faults("lib/a.h", "\n// Nobody passes the turnstile.\n"))
        self.assertEqual(len(found), 2)
        self.assertTrue(all(fault.startswith("lib/a.h:2: ") for fault in found), found)

    def test_a_comment_that_begins_with_what_or_which_is_named_in_sources_of_all_kinds(self):
        for name, text in (("tools/emm/print.h", "// What a command writes."), ("tools/setup.sh", "# What is missing."),
                           ("tests/meson.build", "# What is run."),
                           ("include/emm/emm.h", "int a; /" + "* What it is. */"),
                           ("lib/a.cpp", "int a; /" + "/ which nothing reads"), ("lib/a.h", "// --- what is free ---"),
                           ("tests/soak/soak.py", '    """What is told."' + '""')):
            self.assertEqual(len(list(words.faults(name, text))), 1, name)
        for text in ("// Whatever it is. What follows is code.", '"// What"', "// the memory\n// which is free"):
            self.assertEqual(list(words.faults("tools/emm/print.h", text)), [], text)

    def test_a_comment_that_is_a_rest_of_a_sentence_is_named(self):
        self.assertEqual(len(list(words.faults("lib/a.h", "int a;\n/" + "/ Of the pool.\nint b;"))), 1)
        self.assertEqual(list(words.faults("lib/a.h", "// A figure of the pool, in bytes.\n// Of these, two count.\n")), [])

    def test_an_idiom_is_named_with_a_plain_word(self):
        self.assertIn("say permanently", list(words.faults("lib/a.h", "int a; // for " + "good"))[0])
        self.assertEqual(list(words.faults("lib/a.h", 'say("for good");')), [])

    def test_the_frozen_headers_are_left_alone(self):
        self.assertEqual(list(words.faults("tests/abi/include/emm/emm.h", "// a gate for somebody")), [])

    def test_tests_plugins_and_their_readmes_are_looked_at(self):
        for name in ("tests/README.md", "tests/unit/core/hook_test.cpp", "plugins/pool/heap/heap.h"):
            self.assertEqual(len(list(words.faults(name, "// a gate for somebody"))), 2)


class Names(Tree):
    CASE = 'TEST_CASE("memory goes back") {\n'

    def found(self, name, text):
        sources = ["lib/core/memory.cpp", "plugins/pool/heap.h", "tools/emm/trace/reader.cpp",
                   "tests/unit/core/recorder.h"]
        return list(names.faults(sources, {f"tests/unit/{name}": text}))

    def test_a_test_beside_its_source_passes_and_so_does_a_behaviour(self):
        for name in ("core/memory_test.cpp", "plugins/pool/heap_test.cpp",
                     "tools/emm/trace/reader_test.cpp"):
            self.assertEqual(self.found(name, self.CASE), [])
        for name, line in (("core/resets_test.cpp", "// Behaviour: what a reset leaves.\n"),
                           ("core/resets_test.c", "/* Behaviour: what a reset leaves. */\n"),
                           ("plugins/handle_test.cpp", "// Behaviour: handles of every plugin.\n")):
            self.assertEqual(self.found(name, line + self.CASE), [])
        self.assertEqual(self.found("core/recorder.h", "struct Recorder {};\n"), [])
        self.assertEqual(self.run_check("names.py").returncode, 0)

    def test_a_test_of_no_source_is_named(self):
        for name in ("core/heap_test.cpp", "core/memories_test.cpp", "plugins/heap_test.cpp"):
            self.assertIn("no 'Behaviour: '", self.found(name, self.CASE)[0])
        self.assertIn("no 'Behaviour: '", self.found("core/resets_test.cpp", "// Resets.\n" + self.CASE)[0])
        self.assertEqual(self.found("pool/heap_test.cpp", self.CASE),
                         ["tests/unit/pool/heap_test.cpp: there is neither pool/ nor lib/pool/ for it "
                          "to test"])
        self.write("tests/unit/core/nothing_test.cpp", self.CASE)
        self.assertEqual(self.run_check("names.py").returncode, 1)

    def test_a_behaviour_does_not_hide_behind_the_name_of_a_source(self):
        self.assertIn("is that of lib/core/memory.*",
                      self.found("core/memory_test.cpp", "// Behaviour: resets.\n" + self.CASE)[0])

    def test_the_ending_says_which_files_have_tests(self):
        for text in (self.CASE, "const test memory_tests[] = {\n", "class A(unittest.TestCase):\n"):
            self.assertIn("its name ends with _test", self.found("core/memory.cpp", text)[0])
        self.assertIn("has no test", self.found("core/memory_test.cpp", "int memory;\n")[0])

    def test_a_function_with_a_private_name_is_named_with_its_line(self):
        self.assertEqual(list(names.private_names("lib/a.h", "int a;\nvoid settle" + "_share(int device);\n")),
                         ["lib/a.h:2: settle_share: call the function by what it does"])
        self.assertEqual(list(names.private_names("lib/a.h", "void return_unused(); // settled\n")), [])


class Layout(Tree):
    @unittest.skipUnless(layout.formatter(), "clang-format 14 is not installed")
    def test_a_line_that_clang_format_would_change_fails(self):
        self.write(".clang-format", "BasedOnStyle: LLVM\n")
        self.write("lib/core/record/queue.h", "int a;\n")
        self.assertEqual(self.run_check("format.py").returncode, 0)
        self.write("lib/core/record/queue.h", "int   a  ;\n")
        self.assertEqual(self.run_check("format.py").returncode, 1)


class Shell(Tree):
    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed")
    def test_a_script_that_shellcheck_warns_of_fails(self):
        self.write("tools/go", "#!/usr/bin/env bash\necho \"$1\"\n")
        self.assertEqual(self.run_check("shell.py").returncode, 0)
        self.write("tools/go", "#!/usr/bin/env bash\necho $1\n")
        self.assertEqual(self.run_check("shell.py").returncode, 1)


@unittest.skipUnless(shutil.which("cc"), "no C compiler")
class Runtime(unittest.TestCase):
    def test_the_c_library_the_unwinder_and_libemm_may_be_needed(self):
        names = ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libgcc_s.so.1", "libemm.so.1"]
        listing = ("                 U malloc@GLIBC_2.2.5\n                 U __cxa_atexit@GLIBC_2.2.5\n"
                   "                 U __cxa_at_quick_exit@GLIBC_2.10\n"
                   "                 w __cxa_finalize\n                 w _ZGTtdlPv\n"
                   "                 U _Unwind_Resume@GCC_3.0\n0000000000001000 T emm_version@@EMM_1\n")
        self.assertEqual(list(runtime.faults(names, runtime.symbols(listing))), [])

    def test_another_library_is_named(self):
        self.assertEqual(list(runtime.faults(["libstdc++.so.6", "libcuda.so.1"], [])),
                         ["needs libstdc++.so.6", "needs libcuda.so.1"])

    def test_what_is_shared_with_the_process_is_named(self):
        shared = [("U", "__cxa_throw", "CXXABI_1.3"), ("w", "__cxa_pure_virtual", ""), ("W", "_ZSt4cout", ""),
                  ("u", "one", "")]
        self.assertEqual(list(runtime.faults([], shared)),
                         ["__cxa_throw: is taken from the process", "__cxa_pure_virtual: is taken from the process",
                          "_ZSt4cout: is exported", "one: is one for the whole process (STB_GNU_UNIQUE)"])

    def test_what_an_old_unwinder_lacks_is_named(self):
        found = [("U", "_Unwind_Resume", "GCC_3.0"), ("U", "_Unwind_GetIPInfo", "GCC_4.2.0"), ("U", "new", "GCC_12.0.0")]
        self.assertEqual(list(runtime.faults([], found)), ["new: an old libgcc_s.so.1 has no GCC_12.0.0"])

    def test_a_library_in_c_passes_and_one_in_c_plus_plus_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            for language, text, status in (("c", "int f(void) { return 0; }", 0), ("c++", "void f() { throw 1; }", 1)):
                subprocess.run(["c++", "-x", language, "-shared", "-fPIC", "-o", f"{folder}/a.so", "-"], input=text,
                               text=True, check=True)
                done = subprocess.run([sys.executable, str(HERE / "runtime.py"), f"{folder}/a.so"],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, status, done.stdout)


class Symbols(Tree):
    def library(self, text):
        self.write("a.c", text)
        path = f"{self.root}/a.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, f"{self.root}/a.c"], check=True)
        return path

    def run_symbols(self, *arguments):
        return subprocess.run([sys.executable, str(HERE / "symbols.py"), *arguments],
                              capture_output=True, text=True, check=False)

    def test_a_symbol_too_many_and_one_too_few_are_named(self):
        path = self.library("int emm_a; int emm_c;\n")
        self.assertEqual(list(symbols.difference(symbols.exported(path), {"emm_a", "emm_b"})),
                         ["emm_c: is exported and should not be",
                          "emm_b: should be exported and is not"])

    def test_a_plugin_with_two_symbols_fails_and_with_one_passes(self):
        path = self.library("int entry; int other;\n")
        self.assertEqual(self.run_symbols("only", path, "entry").returncode, 1)
        path = self.library("int entry; static int other; int *use(void);\n")
        self.assertEqual(self.run_symbols("only", path, "entry").returncode, 0)

    def test_a_version_that_the_debian_package_does_not_name_is_told(self):
        script = "EMM_1 {\n    global:\n        emm_*;\n};\nEMM_1_1 {\n} EMM_1;\n"
        symbols = "libemm.so.1 libemm1 #MINVER#\n (symver)EMM_1 0.1.0\n"
        self.assertEqual(package_versions.missing(symbols, [script]), ["EMM_1_1"])
        self.assertEqual(package_versions.missing(symbols + " (symver)EMM_1_1 0.1.0\n", [script]), [])

    def test_an_export_list_is_compared_whole(self):
        path = self.library("int emm_a; int emm_b;\n")
        self.write("list", "emm_a\nemm_b\n")
        self.assertEqual(self.run_symbols("list", path, f"{self.root}/list").returncode, 0)
        self.write("list", "emm_a\n")
        self.assertEqual(self.run_symbols("list", path, f"{self.root}/list").returncode, 1)

    def test_what_the_headers_declare_is_compared_with_the_export_list(self):
        path = self.library("int emm_a;\n")
        self.write("list", "emm_a\n")
        self.write("emm.h", "EMM_API emm_status emm_a(emm_context *context,\n    int count);\n")
        arguments = ("list", path, f"{self.root}/list", f"{self.root}/emm.h")
        self.assertEqual(self.run_symbols(*arguments).returncode, 0)
        self.write("emm.h", "EMM_API const emm_error *emm_b(void);\n")
        told = self.run_symbols(*arguments)
        self.assertEqual(told.returncode, 1)
        self.assertIn("emm_b: is declared and should not be", told.stdout)
        self.assertIn("emm_a: should be declared and is not", told.stdout)


if __name__ == "__main__":
    unittest.main()
