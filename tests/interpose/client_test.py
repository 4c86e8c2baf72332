#!/usr/bin/env python3
"""client_test.py DRIVER PROGRAM HOW [INTERPOSER PLUGIN [TOOL]]: a program on the driver API finds what CUDA's
documentation says, on the simulated driver in the folder DRIVER; and the same, line by line, when the interposer in
the folder INTERPOSER stands before that driver and its memory comes from PLUGIN. TOOL is `emm`, if the program is to
be started by its `run --audit`."""
import csv
import difflib
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

from known_differences import why_different

DRIVER, PROGRAM = (os.path.realpath(path) for path in sys.argv[1:3])
HOW = sys.argv[3]
INTERPOSER, PLUGIN, TOOL = (sys.argv[4:] + [None] * 3)[:3]
SIM = "memory=8GiB,devices=2"
SANITIZED = os.environ.get("EMM_TEST_SANITIZERS", "none") != "none"
WRONG = "wrong-frees"  # the case with errors that no program may make
ZEROED = "zeroed"      # the case with a promise that no driver makes
TIMEOUT = 120
# When work runs makes no difference to how the driver is found.
MODES = ("random",) if SANITIZED or HOW != "dlsym" else ("eager", "lazy", "random")


def run(case, folder, progress="eager", how=HOW, sim="", by=(), **variables):
    """Runs a case; in `folder` lies the libcuda that it finds, and the simulated driver has the options `sim` too.
    `by` are the words that start the program, before its own."""
    how = how.replace("DRIVER", os.path.join(DRIVER, "libcuda.so.1"))
    misuse = "error" if case == WRONG else "abort"
    environment = dict(os.environ, LD_LIBRARY_PATH=folder, **variables,
                       EMM_SIM=f"{SIM},progress={progress},misuse={misuse}" + (f",{sim}" if sim else ""))
    return subprocess.run([*by, PROGRAM, how, case], env=environment, text=True, timeout=TIMEOUT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def cases():
    listing = subprocess.run([PROGRAM, "list"], text=True, stdout=subprocess.PIPE, check=True,
                             env=dict(os.environ, LD_LIBRARY_PATH=DRIVER))
    return [case for case in listing.stdout.split() if case != ZEROED]


def differences(native, interposed):
    return "\n".join(difflib.unified_diff(native.splitlines(), interposed.splitlines(), "native", PLUGIN, n=1,
                                          lineterm=""))


def one_process_a_case():
    """For one way to find the driver. A sanitizer sees as much of all cases in one process."""
    return HOW == "dlsym" and not SANITIZED


class Client(unittest.TestCase):
    maxDiff = None

    def check(self, done, case):
        said = done.stderr if case != WRONG else ""
        self.assertEqual((done.returncode, said), (0, ""),
                         f"{case}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        self.assertNotIn("which is wrong", done.stdout)
        return done.stdout

    def native(self, case, progress="eager"):
        return self.check(run(case, DRIVER, progress), case)


class Native(Client):
    def test_what_it_finds_is_as_documented_whenever_work_runs(self):
        found = [self.native("all", progress) for progress in MODES]
        for other in found[1:]:
            self.assertEqual(found[0], other)
        self.assertGreater(len(found[0].splitlines()), 300)

    def test_wrong_frees_are_refused(self):
        self.assertIn("CUDA_ERROR_INVALID_VALUE", self.native(WRONG))


class Alone(Client):
    def test_each_case_finds_alone_what_it_finds_after_the_others(self):
        together = self.native("all").splitlines()
        for case in sorted(set(cases()) - {WRONG}):
            alone = self.native(case).splitlines()
            self.assertGreater(len(alone), 1)
            self.assertEqual(alone, [line for line in together if line in alone], case)


class Interposed(Client):
    def interposed(self, case, progress="eager", **variables):
        library = os.path.join(INTERPOSER, "libcuda.so.1")
        self.assertTrue(os.path.exists(library), f"{library}: there is no interposer")
        if TOOL:
            return run(case, DRIVER, progress, by=(TOOL, "run", "--audit", "--plugin", PLUGIN, "--"),
                       EMM_DRIVER=os.path.join(DRIVER, "libcuda.so.1"), **variables)
        return run(case, INTERPOSER, progress, LD_PRELOAD=library, EMM_DRIVER=os.path.join(DRIVER, "libcuda.so.1"),
                   **{"EMM_PLUGIN": PLUGIN, **variables})

    def test_each_case_finds_what_it_finds_without_emm(self):
        for case in cases() if one_process_a_case() else [WRONG]:
            with self.subTest(case=case):
                done = self.interposed(case)
                if why_different(case, PLUGIN):
                    self.assertNotEqual(differences(self.native(case), done.stdout), "",
                                        "it is as without emm: known_differences.py need not have it")
                    continue
                self.assertEqual(differences(self.native(case), done.stdout), "", done.stderr[-2000:])
                self.check(done, case)

    def test_all_cases_in_one_process_find_the_same_whenever_work_runs(self):
        same = ",".join(case for case in cases() if case != WRONG and not why_different(case, PLUGIN))
        native = self.native(same, MODES[0])
        for progress in MODES:
            with self.subTest(progress=progress):
                done = self.interposed(same, progress)
                self.assertEqual(differences(native, done.stdout), "", done.stderr[-2000:])
                self.check(done, same)

    @unittest.skipUnless(HOW == "dlsym", "it is as with the other ways")
    def test_zeroed_and_with_waits_it_finds_the_same(self):
        cases_that_wait = "while-capturing,host-functions"
        done = self.interposed(cases_that_wait, "lazy", EMM_RUN="sync-free,zero")
        self.assertEqual(differences(self.native(cases_that_wait, "lazy"), done.stdout), "", done.stderr[-2000:])

    @unittest.skipUnless(HOW == "dlsym", "it is as with the other ways")
    def test_a_stream_joins_a_capture_beside_another_threads_frees(self):
        # The interposer's own question, between the driver's answer and its own, takes long.
        self.check(self.interposed("own-streams", sim="latency=cuStreamGetCaptureInfo:1000"), "own-streams")

    @unittest.skipUnless(HOW == "dlsym", "it is as with the other ways")
    def test_memory_is_zero_where_that_is_asked_for(self):
        for progress in MODES:
            self.check(self.interposed(ZEROED, progress, EMM_RUN="zero"), ZEROED)
        if PLUGIN.startswith("pool"):
            found = self.interposed(ZEROED).stdout
            self.assertEqual(found.count("bytes of cuMemAllocAsync: zero: no"), 3)
            self.assertIn("blocks of cuMemHostAlloc: zero: no", found)

    @unittest.skipUnless(HOW == "dlsym", "it is as with the other ways")
    def test_a_program_that_opens_the_driver_by_its_path_is_told_at_its_end(self):
        done = self.interposed("alloc", how="path=DRIVER")
        self.assertEqual(done.stdout, self.native("alloc"))
        self.assertEqual(done.stderr.count("this program ran without emm"), 1, done.stderr)
        self.assertIn(os.path.join(DRIVER, "libcuda.so.1"), done.stderr)

    @unittest.skipUnless(HOW == "dlsym", "it is as with the other ways")
    def test_a_context_that_the_driver_does_not_end_is_told_of(self):
        done = self.interposed("contexts", sim="fail=cuCtxDestroy@1:999")
        self.assertEqual(done.returncode, 3)  # the case needs that call
        self.assertEqual(done.stderr.count("the driver has refused to end a context (CUDA error 999)"), 1, done.stderr)

    @unittest.skipUnless(HOW == "dlsym", "it is as with the other ways")
    def test_what_is_passed_on_is_told_at_the_end(self):
        done = self.interposed("passed-on", EMM_LOG="info")
        lines = [line for line in done.stderr.splitlines() if "the driver's own memory: " in line]
        self.assertEqual(len(lines), 1, done.stderr)
        mib = 1 << 20
        self.assertEqual(lines[0].split("the driver's own memory: ")[1].split("; "), [
            f"physical live=1 bytes={2 * mib} peak_bytes={4 * mib} made=2",
            f"array live=0 bytes=0 peak_bytes={4 * mib} made=2",
            f"mipmapped_array live=0 bytes=0 peak_bytes={64**3 + 32**3 + 16**3 + 1024} made=1",  # 7 levels
            f"graph_node live=0 bytes=0 peak_bytes={4 * mib} made=1"])  # whole pages
        self.assertNotIn("the driver's own memory", self.interposed("alloc", EMM_LOG="info").stderr)

    @unittest.skipUnless(HOW == "dlsym", "it is as with the other ways")
    def test_a_graph_is_tried_again_if_the_driver_has_no_memory(self):
        for call in "cuGraphLaunch", "cuGraphInstantiateWithFlags":
            failing = f"fail={call}@1:2"  # CUDA_ERROR_OUT_OF_MEMORY
            self.check(self.interposed("passed-on", sim=failing), "passed-on")
            self.assertNotEqual(run("passed-on", DRIVER, sim=failing).returncode, 0, call)

    @unittest.skipUnless(HOW == "dlsym", "it is as with the other ways")
    def test_a_layer_that_guards_is_told_of_what_is_freed_twice(self):
        done = self.interposed(WRONG, EMM_PLUGIN="guard+" + PLUGIN)
        said = [line for line in done.stderr.splitlines() if "guard: a wrong free of 0x" in line]
        self.assertGreaterEqual(len(said), 2, done.stderr)  # of cuMemFree and of cuMemFreeAsync
        for line in said:
            line = re.sub(r"lib[at]san\S+ < ", "", line)  # a sanitizer's own frame
            self.assertNotIn("with size", line)  # CUDA's frees have none
            self.assertRegex(line, r", by client.*; it was allocated by client.* and freed by client")

    def test_the_memory_is_of_the_plugin(self):
        with tempfile.TemporaryDirectory() as folder:
            self.interposed("alloc", EMM_EVENT_LOG=os.path.join(folder, "%p.csv"))
            events = "".join(open(name, encoding="utf-8").read() for name in glob.glob(folder + "/*"))
        self.assertGreater(len(events.splitlines()), 20, "emm served nothing")

    def test_pools_of_its_own_that_keep_their_memory_are_few_of_the_plugins_if_that_gains(self):
        with tempfile.TemporaryDirectory() as folder:
            self.interposed("own-pools", EMM_EVENT_LOG=os.path.join(folder, "%p.csv"))
            rows = [row for name in glob.glob(folder + "/*") for row in csv.reader(open(name, encoding="utf-8"))]
        contexts = {row[-1] for row in rows if row[0] == "Pool" and row[-2].startswith("cuMemPoolCreate#")}
        served = sum(row[0] == "Alloc" and row[-1] in contexts for row in rows)
        if PLUGIN.startswith("pool"):
            self.assertGreater(served, 50)
            self.assertLess(len(contexts), 5, "each of the 53 pools has one of its own")
        else:
            self.assertEqual(served, 0)

    def test_a_question_about_memory_is_no_event(self):
        with tempfile.TemporaryDirectory() as folder:
            self.interposed("info", EMM_EVENT_LOG=os.path.join(folder, "%p.csv"))
            events = "".join(open(name, encoding="utf-8").read() for name in glob.glob(folder + "/*"))
        self.assertIn("Alloc,", events)
        self.assertNotIn("Trim,", events)


def wanted():
    if INTERPOSER:
        return [Interposed]
    return [Native, Alone] if one_process_a_case() else [Native]


if __name__ == "__main__":
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    suite = unittest.TestSuite(load(tests) for tests in wanted())
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
