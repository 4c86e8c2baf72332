#!/usr/bin/env python3
"""check_test.py own|exact|soak SPEC...: the conformance suite passes good plugins and finds bad ones out.

own: each bad plugin fails the cases that stand beside its fault; exact: and no others, mutants aside; soak:
with more seeds for the good ones.
"""
import json
import os
import shutil
import sys
import tempfile
import unittest

from emm_program import answer, fixture, run

HOW = sys.argv[1]
SPECS = sys.argv[2:]
SEEDS = range(1, 21) if HOW == "soak" else [1]

# libemm-NAME.so, broken as a file.
FILES = {
    "bad-exports": ["library/exports"],
    "bad-unique": ["library/unique"],
    "bad-links": ["library/dependencies"],
    "bad-calls": ["library/dependencies"],
    "bad-storage": ["library/thread-storage"],
    "bad-stack": ["library/stack"],
}
if os.environ.get("EMM_TEST_COMPILER") != "gcc":
    del FILES["bad-unique"]  # other compilers make no unique symbols
ALL_ORDER = ["cleanup/ended-streams", "faults/order", "streams/across", "streams/built-in",
             "streams/other-context", "streams/recycled", "streams/retired", "streams/same",
             "streams/traffic", "streams/unordered-alloc"]
# Threads meet as they happen to.
MAY_FAIL = {"early-stream": ["threads/parallel"], "looks-away": ["threads/parallel"],
            "touches-retired": ["threads/parallel"], "trusts-handles": ["threads/parallel"]}
# EMM_TEST_FAULT of libemm-bad.so.
FAULTS = {
    "explains-nothing": ["table/texts"],
    "untidy-version": ["table/lines"],
    "untidy-description": ["table/lines"],
    "untidy-help": ["table/lines"],
    "changes-table": ["table/constant"],
    "busy-entry": ["table/quiet-entry"],
    "host-overrun": ["table/older-host"],
    "info-overrun": ["table/older-host"],
    "resets-context": ["create/pools"],
    "one-for-all": ["context/dead", "create/each-context", "create/pools", "devices/query", "devices/two", "host/portable"],
    "create-leaks": ["faults/create"],
    "initialize-drops": ["initialize/again"],
    "reset-needs-initialize": ["reset/first"],
    "reset-keeps": ["reset/drops"],
    "reset-forgets": ["reset/goes-on"],
    "leak-live": ["cleanup/outlives", "cleanup/refused", "host/leaks", "memory/leaks"],
    "leak-cached": ["cleanup/outlives", "cleanup/refused", "faults/memalloc", "faults/unordered", "memory/leaks"],
    "leak-host": ["host/leaks", "reset/drops"],
    "leaks-events": ["destroy/leaks"],
    "misaligned": ["memory/alignment", "process/freed-exports", "process/shared"],
    "exhausted-for-good": ["memory/exhaustion", "memory/failed", "faults/memalloc", "faults/unordered",
                           "cleanup/no-memory", "cleanup/pressure"],
    "other-code": ["memory/exhaustion", "memory/absurd", "cleanup/pressure"],
    "unknown-code": ["memory/exhaustion", "memory/absurd", "errors/described", "faults/memalloc",
                     "faults/unordered", "cleanup/pressure"],
    "says-nothing": ["errors/described", "faults/memalloc", "faults/unordered"],
    "shy-of-the-largest": ["errors/described"],
    "output-on-failure": ["errors/untouched", "faults/memalloc", "faults/unordered"],
    "throws": ["memory/absurd", "errors/described", "errors/untouched", "accounts/statistics"],
    "needs-size": ["memory/no-size", "faults/trim", "faults/reset"],
    "frees-anything": ["memory/wrong-free"],
    "frees-any-size": ["memory/wrong-size"],
    "frees-any-host-size": ["host/wrong-size"],
    "unpins-by-size": ["host/leaks", "host/registered", "host/wrong-free"],
    "looks-away": ["threads/crowded"],
    "locks-over-wait": ["threads/waits-alone"],
    "locks-over-pending-free": ["streams/other-context", "threads/waits-alone"],
    "fails-beside-trim": ["threads/beside-trim"],
    "peaks-at-failures": ["memory/failed"],
    "keeps-captured": ["capture/ended"],
    "keeps-uses": ["cleanup/ended-uses"],
    "keeps-for-streams": ["cleanup/ended-streams"],
    "forgets-contexts": ["host/portable"],
    "trusts-failures": ["faults/order"],
    "own-thread-only": ["threads/crowded", "threads/foreign-free"],
    "counts-wrong": ["accounts/statistics"],
    "keeps-peaks": ["accounts/peaks"],
    "peaks-of-nothing": ["accounts/peaks"],
    "resets-counts": ["accounts/peaks"],
    "hides-cache": ["accounts/reserved", "cleanup/trim-in-part"],
    "counts-twice": ["accounts/reserved"],
    "boasts-of-memory": ["accounts/reserved", "cleanup/trim"],
    "more-than-all": ["accounts/memory-info"],
    "tells-half-a-device": ["accounts/device-total"],
    "checks-nothing": ["accounts/options"],
    "changes-unchecked": ["accounts/options-changed"],
    "answers-its-question": ["accounts/query"],
    "answers-for-padding": ["accounts/query"],
    "tells-device-0": ["devices/query"],
    "writes-too-much": ["accounts/struct-sizes"],
    "early-stream": ALL_ORDER,
    "early-unordered": ["cleanup/ended-uses", "faults/order", "streams/other-uses", "streams/retired", "streams/traffic",
                        "streams/unordered-free"],
    "forgets-uses": ["cleanup/ended-uses", "streams/other-uses"],
    "waits-at-home": ["capture/unannounced", "streams/other-context"],
    "touches-retired": ["streams/retired", "capture/bystander", "cleanup/ended-streams"],
    "trusts-handles": ["streams/recycled"],
    "breaks-captures": ["capture/bystander", "capture/unannounced", "reset/goes-on"],
    "guesses-captures": ["capture/failed-free"],
    "waits-at-capture-ends": ["capture/unannounced"],
    "claims-capture": ["capture/ended", "capture/free-inside", "capture/inside"],
    "claims-order": ["streams/waits-for-nobody"],
    "section-frees": ["cleanup/section", "reset/goes-on"],
    "section-trims": ["cleanup/section", "reset/goes-on"],
    "sections-do-not-nest": ["cleanup/section"],
    "locks-around-defer": ["cleanup/at-once", "context/dead", "context/replaced", "host/pinned",
                           "host/streams"],
    "loses-refused": ["cleanup/refused"],
    "frees-unqueued": ["context/no-queue"],
    "frees-dropped": ["cleanup/dropped", "context/dead", "context/no-queue", "context/replaced"],
    "frees-the-dead": ["context/dead", "context/replaced"],
    "keeps-cache": ["cleanup/trim", "process/freed-exports"],
    "trim-boasts": ["cleanup/trim", "cleanup/trim-in-part"],
    "trim-hides": ["cleanup/trim", "cleanup/trim-in-part"],
    "trims-all": ["cleanup/trim-in-part"],
    "maps-always": ["host/pinned"],
    "forgets-host-memory": ["faults/memhostalloc", "host/leaks"],
    "fork-dies": ["process/forked", "process/forked-busy"],
    "exit-waits": ["process/forked-busy"],
    "exit-dies": ["capture/free-inside", "process/exit", "process/forked", "process/forked-busy",
                  "process/late-free"],
}
# The same with cache=streams: the simplest cache keeps memory that is freed on a stream, behind an event.
CACHE_FAULTS = {
    "leak-live": ["cleanup/outlives", "cleanup/refused", "host/leaks", "memory/leaks"],
    "leak-cached": ["cleanup/outlives", "cleanup/refused", "faults/memalloc", "memory/leaks"],
    "leaks-trimmed-events": ["destroy/leaks"],
    "loses-refused": ["cleanup/refused"],
    "keeps-cache": ["cleanup/trim", "process/freed-exports"],
    "trims-all": ["cleanup/trim-in-part"],
    "trim-hides": ["cleanup/trim", "cleanup/trim-in-part"],
    "trim-boasts": ["cleanup/trim", "cleanup/trim-in-part"],
    "section-frees": ["cleanup/no-memory", "cleanup/section", "reset/goes-on"],
    "section-trims": ["cleanup/section", "reset/goes-on"],
    "counts-wrong": ["accounts/statistics"],
    "counts-reused": ["accounts/reserved"],
    "counts-twice": ["accounts/reserved"],
    "hides-cache": ["accounts/reserved", "cleanup/trim-in-part"],
    "early-stream": ALL_ORDER,
    "early-unordered": ["streams/traffic", "streams/unordered-alloc"],
    "forgets-uses": ["cleanup/ended-uses", "streams/other-uses"],
    "trusts-failures": ["faults/order", "streams/other-context", "streams/traffic", "streams/unordered-alloc"],
    "breaks-captures": ["capture/bystander", "capture/unannounced", "reset/goes-on"],
    "claims-capture": ["capture/ended", "capture/free-inside", "capture/inside"],
    "forgets-exports": ["process/freed-exports"],
    "keeps-exports": ["process/freed-exports"],
    "exports-elsewhere": ["process/shared"],
    "reset-keeps": ["reset/drops"],
    "reset-loses-cache": ["destroy/leaks", "reset/drops"],
    "reset-forgets": ["reset/goes-on"],
    "frees-the-dead": ["context/dead", "context/replaced"],
    "frees-any-size": ["memory/wrong-size"],
    "overflows": ["memory/absurd"],
}
# The faults of libemm-bad-pause.so, which are only about pauses.
PAUSE_FAULTS = {
    "boasts": ["pause/returns"],
    "keeps-large-ones": ["pause/no-memory", "pause/returns"],
    "pauses-twice": ["pause/returns"],
    "resumes-twice": ["pause/returns"],
    "loses-content": ["faults/pause", "pause/content", "pause/no-memory", "pause/waits"],
    "tells-other-content": ["pause/content"],
    "does-not-wait": ["pause/waits"],
    "pauses-in-captures": ["pause/refusals"],
    "pauses-in-sections": ["pause/refusals"],
    "allocates": ["pause/no-memory", "pause/requests"],
    "refuses-frees": ["pause/requests"],
    "half-resumed": ["faults/pause", "pause/no-memory"],
    "loses-copies": ["pause/ends"],
    "stays-paused": ["pause/ends"],
}
# Faults that only the case of their requirement is asked about, which fails: by case.
MUTANTS = {
    "table/newer-host": ["asks-for-its-minor"],
    "table/quiet-entry": ["thread-in-entry"],
    "table/short": ["creates-once"],
    "initialize/again": ["initialize-refuses-again"],
    "reset/no-context": ["needs-no-context"],
    "reset/goes-on": ["reset-forgets-captures", "reset-forgets-sections"],
    "reset/drops": ["reset-keeps-host"],
    "faults/destroy": ["destroy-trusts-driver"],
    "memory/sizes": ["too-small"],
    "memory/traffic": ["serves-smaller"],
    "faults/memfree": ["stops-after-failure"],
    "memory/failed": ["keeps-for-failures", "peaks-live-at-failures"],
    "accounts/statistics": ["forgets-failures", "counts-refused-frees"],
    "accounts/reserved": ["forgets-returns"],
    "accounts/peaks": ["keeps-reserved-peak"],
    "accounts/memory-info": ["counts-live-as-free"],
    "accounts/device-total": ["total-makes-context"],
    "accounts/options": ["refuses-large-options"],
    "accounts/options-changed": ["refuses-large-changes", "changes-drop"],
    "accounts/query": ["tells-freed", "tells-beginnings", "tells-other-kind"],
    "errors/untouched": [
        "query-output-on-failure", "export-output-on-failure", "host-output-on-failure",
        "managed-output-on-failure"],
    "memory/wrong-free": ["frees-inside", "frees-twice"],
    "memory/wrong-size": ["frees-smaller-sizes", "loses-wrong-sized"],
    "process/freed-exports": ["exports-beyond", "releases-once"],
    "process/late-free": ["late-free-fails"],
    "cleanup/pressure": ["locks-over-pressure"],
    "cleanup/trim-in-part": ["trims-one-less", "trims-one-more"],
    "cleanup/section": ["section-frees-host"],
    "streams/built-in": ["early-legacy", "early-per-thread"],
    "host/streams": ["early-host"],
    "host/pinned": ["maps-never", "shares-host-blocks"],
    "host/wrong-free": ["frees-any-host", "frees-any-managed"],
    "faults/memhostalloc": ["host-leaks-on-failure"],
    "faults/mempin": ["pin-leaks-on-failure"],
    "host/registered": ["pins-twice", "pins-unmapped", "unpins-later", "unpins-anything"],
    "host/wrong-size": ["unpins-any-size", "frees-any-managed-size"],
    "host/leaks": ["leak-registered", "leak-managed"],
    "host/managed": ["shares-managed-blocks"],
}
# The same of libemm-bad-pause.so.
PAUSE_MUTANTS = {
    "devices/peers": [
        "access-to-later-alone", "access-to-earlier-alone", "resume-forgets-access", "reset-forgets-access"],
}
PAUSE_CASES = ["pause/", "faults/pause"]
if "address" in os.environ.get("EMM_TEST_SANITIZERS", ""):
    for name in "host-overrun", "info-overrun":
        del FAULTS[name]  # the sanitizer ends the suite there, as it should
if os.environ.get("EMM_TEST_SANITIZERS", "none") != "none":
    del FAULTS["exit-waits"]  # the suite skips the case: sanitizers have locks of their own
    for cases in FAULTS.values():
        if "process/forked-busy" in cases:
            cases.remove("process/forked-busy")


# EMM_TEST_LAYER_FAULT of libemm-bad-layer.so, over `bad`.
LAYER_FAULTS = {
    "mixes-managers": ["layers/managers"],
    "describes-failures-anew": ["layers/failures"],
    "frees-what-reset-dropped": ["layers/reset"],
    "calls-after-its-end": ["layers/ended"],
    "loses-odd-frees": ["layers/returned"],
}


def failed(report):
    """Without the progress mode, each once."""
    names = [case["name"].split("@")[0] for case in report["cases"] if case["outcome"] == "failed"]
    return sorted(set(names))


def check(spec, *arguments, **variables):
    done = run("check", spec, "--json", *arguments, **variables)
    if done.returncode not in (0, 1) or not done.stdout:
        raise AssertionError(f"{spec}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout), done.returncode


def filters(cases):
    return [word for name in cases for word in ("--filter", name)] if HOW == "own" else []


class ConformanceSuite(unittest.TestCase):
    def test_good_plugins_keep_every_requirement(self):
        for seed in SEEDS:
            for spec in SPECS + [fixture("bad"), fixture("bad") + ":cache=streams"]:
                with self.subTest(spec=spec, seed=seed):
                    report, status = check(spec, "--seed", seed)
                    told = [case for case in report["cases"] if case["outcome"] == "failed"]
                    self.assertEqual((told, status), ([], 0))
                    self.assertGreater(report["passed"], 90)
                    self.assertIn("keeps every requirement", report["verdict"])

    def test_each_bad_plugin_fails_its_own_cases(self):
        for options, faults in ("", FAULTS), (":cache=streams", CACHE_FAULTS):
            for fault, cases in faults.items():
                with self.subTest(fault, options=options):
                    report, status = check(fixture("bad") + options, *filters(cases), EMM_TEST_FAULT=fault)
                    found = set(failed(report)) - set(MAY_FAIL.get(fault, []))
                    self.assertEqual((sorted(found), status), (sorted(cases), 1))
        for name, cases in FILES.items():
            with self.subTest(name):
                report, status = check(fixture(name), *filters(cases))
                self.assertEqual((failed(report), status), (sorted(cases), 1))

    def test_each_mutant_fails_the_case_of_its_requirement(self):
        for plugin, mutants in ("bad", MUTANTS), ("bad-pause", PAUSE_MUTANTS):
            for case, faults in mutants.items():
                for fault in faults:
                    with self.subTest(fault, plugin=plugin):
                        report, status = check(fixture(plugin), "--filter", case, EMM_TEST_FAULT=fault)
                        self.assertEqual((failed(report), status), ([case], 1))

    @unittest.skipUnless("bad-unique" in FILES and "exit-waits" in FAULTS, "some bad plugins are not for this build")
    def test_each_case_is_failed_by_a_bad_plugin(self):
        tables = FAULTS, CACHE_FAULTS, PAUSE_FAULTS, FILES, LAYER_FAULTS, MAY_FAIL
        caught = {case for table in tables for cases in table.values() for case in cases} | {*MUTANTS, *PAUSE_MUTANTS}
        of_plugins = {case["name"].split("@")[0] for case in answer("check", "--list")["cases"]
                      if any(each[:5] != "EMM-H" for each in case["requirements"])}
        self.assertEqual(of_plugins - caught, set())

    def test_each_plugin_that_pauses_badly_fails_the_cases_of_its_fault(self):
        words = [word for name in PAUSE_CASES for word in ("--filter", name)]
        report, status = check(fixture("bad-pause"), *words)
        self.assertEqual((failed(report), report["skipped"], status), ([], 0, 0))
        for fault, cases in PAUSE_FAULTS.items():
            with self.subTest(fault):
                report, status = check(fixture("bad-pause"), *words, EMM_TEST_FAULT=fault)
                self.assertEqual((failed(report), status), (sorted(cases), 1))

    def test_each_bad_layer_fails_its_own_case(self):
        folder = {"EMM_PLUGIN_PATH": os.path.dirname(fixture("bad"))}
        for fault, cases in {"": [], **LAYER_FAULTS}.items():
            with self.subTest(fault):
                report, status = check("bad-layer+bad", *filters(cases), EMM_TEST_LAYER_FAULT=fault, **folder)
                self.assertEqual((failed(report), status), (cases, int(bool(cases))))

    def test_a_case_about_layers_is_skipped_where_there_is_none(self):
        report, status = check("passthrough", "--filter", "layers/")
        self.assertEqual(({case["message"] for case in report["cases"]}, status), ({"it has no layer"}, 0))

    def test_a_case_about_a_function_that_the_plugin_leaves_out_is_skipped_and_says_so(self):
        report, status = check("passthrough", "--filter", "pause/returns", "--filter", "memory/sizes")
        told = {case["name"]: (case["outcome"], case["message"]) for case in report["cases"]}
        self.assertEqual(told["pause/returns"], ("skipped", "it has no pause"))
        self.assertEqual(told["memory/sizes"][0], "passed")
        self.assertEqual((report["skipped"], status), (sum(each[0] == "skipped" for each in told.values()), 0))

    def test_a_case_about_a_cache_is_skipped_where_nothing_was_cached(self):
        names = "cleanup/trim", "cleanup/trim-in-part", "faults/trim"
        report, status = check(fixture("bad"), *(word for name in names for word in ("--filter", name)),
                               EMM_TEST_FAULT="caches-nothing")
        told = {case["name"]: case["message"] for case in report["cases"]}
        self.assertEqual((told, status), ({name: "nothing was cached" for name in names}, 0))

    def test_people_read_what_was_expected_which_requirement_and_how_to_run_it_again(self):
        done = run("check", fixture("bad"), "--filter", "memory/no-size", EMM_TEST_FAULT="needs-size")
        for words in ("FAIL  memory/no-size", "EMM-P-17", "requirement: a free need not know the size",
                      "--filter memory/no-size --seed 1", f"verdict: {fixture('bad')} fails EMM-P-17"):
            self.assertIn(words, done.stdout)

    def test_the_verdict_names_the_options_of_the_plugin_and_of_its_layers(self):
        spec = "count:every=9+pool:max=1GiB"
        report, _ = check(spec, "--filter", "memory/no-size")
        self.assertEqual(report["verdict"], spec + " keeps every requirement that was checked")

    def test_a_filter_takes_a_part_of_a_name_or_a_requirement_and_one_that_fits_nothing_is_wrong_usage(self):
        listed = answer("check", "--list", "--filter", "EMM-P-17")["cases"]
        self.assertEqual([case["name"] for case in listed], ["memory/no-size"])
        modes = answer("check", "--list", "--filter", "streams/across")["cases"]
        self.assertEqual([case["name"] for case in modes],
                         [f"streams/across@{mode}" for mode in ("eager", "lazy", "random")])
        self.assertEqual(run("check", "passthrough", "--filter", "no-such-case").returncode, 2)
        self.assertEqual(run("check").returncode, 2)

    def test_a_plugin_that_does_not_load_is_told_as_the_loader_tells_it(self):
        told = answer("check", "passthruogh", status=1)
        self.assertEqual(told["error"]["stage"], "resolve")

    def test_a_path_need_not_be_utf_8(self):
        with tempfile.TemporaryDirectory(prefix=os.fsdecode(b"\xff")) as folder:
            path = shutil.copy(fixture("bad"), folder)
            report, status = check(path, "--filter", "library/", "--filter", "table/constant")
            self.assertEqual((failed(report), report["skipped"], status), ([], 0, 0))

    def test_a_limit_is_told_before_there_is_a_context(self):
        for spec in "pool", "pool:max=64MiB", "async:max=64MiB":
            report, status = check(spec, "--filter", "accounts/device-total")
            self.assertEqual((failed(report), report["passed"], status), ([], 1, 0))

    def test_cases_that_a_limit_has_no_room_for_are_skipped(self):
        for spec in "pool:max=64MiB", "async:max=64MiB":
            report, status = check(spec)
            self.assertEqual((failed(report), status), ([], 0))
            reasons = {case["name"]: case["message"] for case in report["cases"] if case["outcome"] == "skipped"}
            self.assertIn("it needs more than the 64.00 MiB that a limit leaves the plugin", reasons["accounts/reserved"])
        report, status = check("pool:spill=16GiB", EMM_LIMIT="64MiB")
        self.assertEqual((failed(report), status), ([], 0))

    def test_a_crash_and_a_hang_are_failures_of_that_case_alone(self):
        report, status = check(fixture("crashing"), "--filter", "memory/alignment",
                               "--filter", "library/stack")
        self.assertEqual((failed(report), status, report["passed"]), (["memory/alignment"], 1, 1))
        report, _ = check(fixture("bad"), "--filter", "memory/alignment", "--limit", "1",
                          EMM_TEST_FAULT="hangs")
        self.assertIn("silent for 1 s", report["cases"][0]["message"])

    def test_the_first_failure_of_a_plugin_that_cannot_allocate_is_about_memory(self):
        report, _ = check(fixture("crashing"))
        self.assertEqual([case["name"] for case in report["cases"] if case["outcome"] == "failed"][0],
                         "memory/alignment")

    def test_a_crash_names_the_slot_that_it_happened_in(self):
        report, _ = check(fixture("crashing"), "--filter", "memory/alignment")
        self.assertIn("(Aborted) inside memalloc", report["cases"][0]["message"])

    def test_a_free_that_frees_nothing_is_suspected_when_memory_runs_out(self):
        report, _ = check(fixture("bad"), "--filter", "cleanup/no-memory", EMM_TEST_FAULT="frees-nothing")
        self.assertIn("does memfree give memory back", report["cases"][0]["message"])

    def test_a_segment_that_holds_a_live_block_is_no_fault_of_trim(self):
        for segment in "64MiB", "256MiB":
            report, status = check(f"pool:segment={segment}", "--filter", "cleanup/trim")
            self.assertEqual((failed(report), status), ([], 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
