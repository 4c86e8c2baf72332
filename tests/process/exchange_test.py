#!/usr/bin/env python3
"""Files that `emm` exchanges with other tools: `export`, `replay -`, in both directions."""
import gzip
import io
import json
import os
import pickle
import pickletools
import resource
import subprocess
import unittest

from emm_program import EMM, HEADER, answer
from exchange_samples import CALLER, LOG_HEADER, RMM_HEADER, Case, emm, event, read_profile, row, snapshot

# The opcodes that the viewer at pytorch.org/memory_viz reads.
VIEWER = {"PROTO", "MARK", "STOP", "EMPTY_DICT", "SETITEMS", "EMPTY_LIST", "APPENDS", "BINUNICODE", "LONG_BINPUT",
          "BINGET", "LONG_BINGET", "BININT", "BININT1", "BININT2", "LONG1", "NEWTRUE", "NEWFALSE"}
# A program on the driver that prints the most it had allocated.
PROGRAM = """
import ctypes, random
driver = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    if getattr(driver, name)(*arguments) != 0:
        raise SystemExit(name)
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuStreamCreate", ctypes.byref(stream), 1)
random.seed(3)
live, now, peak = [], 0, 0
for i in range(2000):
    if live and random.random() < 0.48:
        block, size, ordered = live.pop(random.randrange(len(live)))
        call(*(("cuMemFreeAsync", block, stream) if ordered else ("cuMemFree_v2", block)))
        now -= size
    else:
        block, size = ctypes.c_uint64(), random.randrange(1, 1 << random.randrange(8, 22))
        asked = ctypes.byref(block), ctypes.c_size_t(size)
        call(*(("cuMemAllocAsync", *asked, stream) if i % 2 else ("cuMemAlloc_v2", *asked)))
        live.append((block, size, i % 2))
        now += size
        peak = max(peak, now)
print(peak)
"""


class StandardInput(Case):
    TRACE = (HEADER + "0,0,0,alloc,1,1000\n0,0,0,alloc,2,500\n1,0,0,free,1,1000\n").encode()

    def test_a_trace_on_standard_input_is_replayed_on_several_plugins(self):
        for content in (self.TRACE, gzip.compress(self.TRACE)):
            told = json.loads(self.output("replay", "-", "--plugin", "passthrough", "--plugin", "pool", "--json",
                                          stdin=content))
            self.assertEqual(told["trace"], "standard input")
            self.assertEqual([(result["peak_live_bytes"], result["failed"]) for result in told["results"]],
                             [(1500, 0)] * 2)

    def test_a_refusal_names_standard_input_and_the_line(self):
        self.assertIn("standard input, line 2: expected 6 fields",
                      self.refusal("replay", "-", stdin=HEADER.encode() + b"0,0\n"))
        self.assertIn("standard input, line 1: expected the header", self.refusal("replay", "-"))

    def test_a_folder_for_temporary_files_that_is_missing_is_told(self):
        self.assertIn("cannot copy standard input: /nowhere: No such file or directory",
                      self.refusal("replay", "-", status=1, stdin=self.TRACE, TMPDIR="/nowhere"))

    def test_a_recording_and_a_log_come_on_standard_input_too(self):
        log = (LOG_HEADER + row("Alloc", 4096, 100, 0.1)).encode()
        packed = self.output("export", "-", "--to", "torch-snapshot", stdin=log)
        self.assertEqual(self.output("import", "-", stdin=packed).decode(), HEADER + "0,0,0,alloc,0,100\n")


class ToSnapshot(Case):
    def exported(self, log, *words):
        return self.output("export", log, "--to", "torch-snapshot", *words)

    def test_events_and_blocks_are_where_pytorch_has_them(self):
        log = self.log(row("Alloc", 0x1000, 100, 0.1), row("Alloc", 0x2000, 200, 0.2, "0x7f00"),
                       row("Free", 0x1000, 100, 0.3, "-1"), row("Alloc Host", 0x1000, 64, 0.4),
                       row("Alloc Failure", 0, 999, 0.5))
        told = pickle.loads(self.exported(log))
        trace, = told["device_traces"]
        self.assertEqual([(event["action"], event.get("addr"), event["size"], event["stream"]) for event in trace],
                         [("segment_alloc", 0x1000, 100, 0), ("alloc", 0x1000, 100, 0),
                          ("segment_alloc", 0x2000, 200, 0x7f00), ("alloc", 0x2000, 200, 0x7f00),
                          ("free_requested", 0x1000, 100, -1), ("free_completed", 0x1000, 100, -1),
                          ("segment_free", 0x1000, 100, -1), ("oom", None, 999, 0)])
        self.assertEqual((trace[1]["time_us"], trace[4]["time_us"], trace[-1]["device_free"]), (100001, 300000, 600))
        self.assertEqual(trace[0]["frames"], [{"name": "work(int)+0x3", "filename": "/usr/lib/liba.so", "line": 0}])
        segment, = told["segments"]
        self.assertEqual((segment["device"], segment["address"], segment["total_size"]), (0, 0x2000, 200))
        self.assertEqual([(block["address"], block["size"], block["requested_size"], block["state"])
                          for block in segment["blocks"]], [(0x2000, 200, 200, "active_allocated")])

    def test_only_opcodes_that_the_viewer_reads_are_written(self):
        rows = [row("Alloc", 1 << 20 << i, 100 << i, i, caller=f"/x.so+{i:#x}") for i in range(40)]
        told = self.exported(self.log(*rows, row("Retire", 0, 0, 99)))
        found = {opcode.name for opcode, _, _ in pickletools.genops(told)}
        self.assertLessEqual(found, VIEWER)

    def test_each_device_has_a_trace_of_its_own_and_a_reset_frees_its_blocks(self):
        log = self.log(row("Alloc", 0x1000, 100, 0.1), row("Alloc", 0x2000, 200, 0.2, device=2),
                       row("Reset", 0, 0, 0.3, device=2))
        told = pickle.loads(self.exported(log))
        self.assertEqual([len(trace) for trace in told["device_traces"]], [2, 0, 5])
        self.assertEqual([segment["device"] for segment in told["segments"]], [0])

    def test_what_a_reset_or_the_end_of_a_context_takes_is_dropped_and_not_freed(self):
        blocks = [0x1000 * i for i in range(1, 11)]
        log = self.log(*(row("Alloc", address, 100, address / 1e6) for address in blocks), row("Free", blocks[0], 100, 1),
                       row("Reset", 0, 0, 2), *(row("Alloc", address, 100, 3 + address / 1e6) for address in blocks),
                       row("Free", blocks[0], 100, 4), row("Free", blocks[1], 100, 4), row("Retire", 0, 0, 5),
                       row("Late Free", blocks[2], 100, 6))
        dropped = {"dropped_by_reset": 9, "dropped_with_context": 8}
        counts = {"allocations": 20, "frees": 3, **dropped}
        events = answer("events", log)
        self.assertEqual({key: events[key] for key in counts}, counts)
        text = "3 frees, 9 dropped by a reset, 8 dropped with their context, at most 1000 B live\n"
        self.assertIn(text, self.output("events", log).decode())
        for to, told in (("chrome-trace", counts), ("torch-snapshot", {"live": 0, **dropped})):
            path = self.folder / to
            exported = answer("export", log, "--to", to, "-o", path)
            self.assertEqual({key: exported[key] for key in told}, told)
            self.assertIn(", 9 dropped by a reset, 8 dropped with their context\n",
                          self.output("export", log, "--to", to, "-o", path).decode())
        ends = [each["args"] for each in json.loads((self.folder / "chrome-trace").read_text())["traceEvents"]
                if each["ph"] == "e"]
        self.assertEqual((sum("freed by" in each for each in ends), sum("dropped by" in each for each in ends)), (3, 17))

    def test_the_last_events_alone_leave_out_the_first(self):
        rows = [row(kind, 0x1000 * i, 100, i) for i in range(1, 9) for kind in ("Alloc", "Free")]
        path = self.folder / "s.pickle"
        told = answer("export", self.log(*rows), "--to", "torch-snapshot", "--last", 4, "-o", path)
        self.assertEqual((told["events"], told["left_off"], told["live"]), (4, 12, 0))
        trace, = pickle.loads(path.read_bytes())["device_traces"]
        self.assertEqual({event["addr"] for event in trace}, {0x7000, 0x8000})

    def test_hostile_callers_are_texts_without_control_characters(self):
        name = "/\x1b[2J<b>" + "x" * 9000 + "+0x1"
        log = self.file("log.csv", (LOG_HEADER + row("Alloc", 4096, 1, 0.1, caller=name)).encode() +
                        row("Alloc", 8192, 1, 0.2, caller="BAD+0x2").encode().replace(b"BAD", b"\xff\xfe"))
        trace, = pickle.loads(self.exported(log))["device_traces"]
        self.assertTrue(trace[0]["frames"][0]["filename"].startswith("/?[2J<b>xxx"))
        self.assertEqual(trace[2]["frames"][0]["filename"], "\ufffd\ufffd")

    def test_a_recorded_run_has_the_same_peak_after_a_round_trip(self):
        trace = self.file("t.csv", HEADER + "".join(
            f"{i},0,{i % 3},alloc,{i},{1 + i * 7919 % 100000}\n" +
            (f"{i},0,{i % 3},free,{i - 20},{1 + (i - 20) * 7919 % 100000}\n" if i >= 20 else "")
            for i in range(400)))
        log = self.folder / "run.csv"
        recorded = answer("replay", trace, "--plugin", "pool", EMM_EVENT_LOG=log)["results"][0]
        again = self.output("import", "-", stdin=self.exported(log))
        replayed = json.loads(self.output("replay", "-", "--plugin", "pool", "--json", stdin=again))["results"][0]
        self.assertEqual(replayed["peak_live_bytes"], recorded["peak_live_bytes"])
        self.assertEqual((replayed["failed"], replayed["leaked"]), (0, 0))


class ToChrome(Case):
    def exported(self, *rows):
        return json.loads(self.output("export", self.log(*rows), "--to", "chrome-trace"))["traceEvents"]

    def test_blocks_are_slices_of_their_stream_and_counters_are_the_devices(self):
        events = self.exported(row("Alloc", 0x1000, 100, 0.1, "0x7f00"), row("Free", 0x1000, 100, 0.3, "-1"),
                               row("Trim", 0, 50, 0.4))
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        begin, end = (next(event for event in events if event["ph"] == phase) for phase in "be")
        self.assertEqual(names[begin["pid"]], "device 0, stream 0x7f00")
        self.assertEqual([(event["id2"]["local"], event["pid"], event["cat"], event["name"]) for event in (begin, end)],
                         [(0, begin["pid"], "device memory", "work(int)+0x3")] * 2)
        self.assertEqual((begin["ts"], end["ts"]), (100001.0, 300000.0))
        self.assertEqual((begin["args"]["size"], end["args"]["freed on"]), (100, "no stream"))
        counters = [(names[event["pid"]], event["name"], event["args"]["bytes"]) for event in events
                    if event["ph"] == "C"]
        self.assertEqual(counters, [("device 0", "live device memory", 100), ("device 0", "in use on the device", 400),
                                    ("device 0", "live device memory", 0), ("device 0", "in use on the device", 400)])
        self.assertEqual([event["name"] for event in events if event["ph"] == "i"], ["Trim"])

    def test_of_each_device_the_last_events_can_be_had_with_what_is_live_then(self):
        rows = [row("Alloc", 0x1000, 100, 0.1), row("Alloc", 0x2000, 7, 0.2), row("Free", 0x2000, 7, 0.3),
                row("Alloc", 0x9000, 30, 0.35, device=1), row("Alloc Host", 0x3000, 50, 0.4), row("Trim", 0, 0, 0.5),
                row("Free", 0x1000, 100, 0.6)]
        path = self.folder / "trace"
        told = answer("export", self.log(*rows), "--to", "chrome-trace", "--last", 3, "-o", path)
        self.assertEqual((told["allocations"], told["frees"], told["left_off"]), (2, 1, 3))
        events = json.loads(path.read_text())["traceEvents"]
        self.assertEqual([(event["ph"], event["args"].get("size")) for event in events if event["ph"] in "bei"],
                         [("b", 30), ("b", 100), ("b", 50), ("i", 0), ("e", None)])
        live = [event["args"]["bytes"] for event in events if event["name"] == "live device memory"]
        self.assertEqual(live, [30, 0])

    def test_hostile_callers_are_escaped(self):
        name = '/a"\\\x1b<script>+0x1 (f("x")+0x1)'
        begin = next(event for event in self.exported(row("Alloc", 4096, 1, 0.1, caller=name)) if event["ph"] == "b")
        self.assertEqual(begin["args"]["caller"], name)


class ToPprof(Case):
    ROWS = (row("Alloc", 0x1000, 100, 0.1), row("Alloc", 0x2000, 50, 0.2, caller=CALLER + "\t/home/me/train.py:12 (step)"),
            row("Alloc Host", 0x9000, 7, 0.25), row("Free", 0x1000, 100, 0.3), row("Alloc", 0x3000, 30, 0.4),
            row("Alloc", 0x1000, 5, 0.5, device=1, caller=CALLER + "\ttag serve/decode"))

    def exported(self, *rows):
        return gzip.decompress(self.output("export", self.log(*rows), "--to", "pprof"))

    def test_values_by_caller_are_all_in_the_end_and_at_the_peak(self):
        try:
            profile = read_profile(self.exported(*self.ROWS))
        except ImportError:
            self.skipTest("the Python package protobuf is not installed")
        text = lambda number: profile.string_table[number]
        self.assertEqual([text(each.type) + "/" + text(each.unit) for each in profile.sample_type],
                         ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes",
                          "peak_objects/count", "peak_space/bytes"])
        self.assertEqual((text(profile.default_sample_type), text(0), profile.period), ("peak_space", "", 1))
        functions = {each.id: each for each in profile.function}
        locations = {each.id: each for each in profile.location}
        mappings = {each.id: each for each in profile.mapping}
        def stack(sample):
            lines = [locations[number].line[0] for number in sample.location_id]
            return [(text(functions[line.function_id].name), text(functions[line.function_id].filename), line.line)
                    for line in lines]
        self.assertEqual({text(label.key) for sample in profile.sample for label in sample.label}, {"device", "memory", "tag"})
        found = {tuple(text(label.str) for label in sample.label) + (len(sample.location_id),):
                 (list(sample.value), stack(sample)) for sample in profile.sample}
        compiled = ("work(int)", "/usr/lib/liba.so", 0)
        self.assertEqual(found, {
            ("0", "device", 1): ([2, 130, 1, 30, 1, 100], [compiled]),
            ("0", "device", 2): ([1, 50, 1, 50, 1, 50], [compiled, ("step", "/home/me/train.py", 12)]),
            ("0", "pinned", 1): ([1, 7, 1, 7, 0, 0], [compiled]),
            ("1", "device", "serve/decode", 1): ([1, 5, 1, 5, 1, 5], [compiled])})
        self.assertEqual([text(each.filename) for each in mappings.values()], ["/usr/lib/liba.so"])
        self.assertEqual({each.mapping_id for each in locations.values()}, {0, 1})

    def test_an_empty_log_is_a_profile_without_samples_and_last_is_refused(self):
        self.assertIn(b"peak_space", self.exported())
        log = self.log(*self.ROWS)
        self.assertIn("--last cannot be used with --to pprof", self.refusal("export", log, "--to", "pprof", "--last", 3))
        path = self.folder / "heap.pb.gz"
        told = answer("export", log, "--to", "pprof", "-o", path)
        self.assertEqual((told["samples"], told["allocations"], told["live"]), (4, 5, 4))
        self.assertIn("as pprof: 4 samples, 5 allocations, 4 live", self.output("export", log, "--to", "pprof", "-o", path).decode())


class Files(Case):
    def test_a_file_that_is_none_of_the_formats_is_refused(self):
        for content, found in (("", "an empty file"), ("hello\n", "'hello'"), ("\x1b[2J", "'?[2J'"), (HEADER, "'time,")):
            self.assertIn(f"expected a PyTorch snapshot (a pickle), an RMM log or a Kineto trace (JSON), found {found}",
                          self.refusal("import", self.file("x", content)))
        self.assertIn("line 1: expected the header of an event log (EMM_EVENT_LOG), found 'hello'",
                      self.refusal("export", self.file("x", "hello\n"), "--to", "chrome-trace"))

    def test_a_format_that_was_chosen_is_the_one_that_is_read(self):
        path = self.file("x", RMM_HEADER)
        self.assertIn("byte 1: expected JSON", self.refusal("import", path, "--from", "kineto"))

    def test_a_refused_file_leaves_what_was_there(self):
        kept = self.file("kept", "before")
        log = self.log(row("Alloc", 4096, 1, 0.1), "Alloc,0\n")
        for to in ("torch-snapshot", "chrome-trace"):
            self.assertIn("line 3: expected the 12 fields", self.refusal("export", log, "--to", to, "-o", kept))
        self.refusal("import", self.file("x", RMM_HEADER + "5\n"), "-o", kept)
        self.assertEqual(kept.read_text(), "before")

    def test_a_file_takes_the_place_of_another_with_the_usual_rights_and_through_a_link(self):
        path, link = self.file("real", "before"), self.folder / "link"
        link.symlink_to(path)
        self.output("export", self.log(row("Alloc", 4096, 1, 0.1)), "--to", "torch-snapshot", "-o", link)
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual((link.is_symlink(), path.stat().st_mode & 0o777), (True, 0o666 & ~mask))
        pickle.loads(path.read_bytes())

    def test_a_file_is_written_where_there_is_no_proc(self):
        without = ["unshare", "--mount", "--map-root-user", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
        if subprocess.run([*without, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no mounts of one's own are allowed here")
        log, path = self.log(row("Alloc", 4096, 1, 0.1)), self.folder / "exported"
        libraries = os.path.join(os.path.dirname(EMM), "../../lib") # $ORIGIN in a path of libraries needs /proc
        done = subprocess.run([*without, EMM, "export", log, "--to", "torch-snapshot", "-o", path], text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": libraries}, capture_output=True, check=False)
        if "LeakSanitizer does not work" in done.stderr: # without /proc, its options are not read either
            self.skipTest("the leak check at the end needs /proc")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        pickle.loads(path.read_bytes())
        self.assertEqual(len(list(self.folder.iterdir())), 2)

    def test_what_cannot_be_written_is_a_failure_and_said(self):
        log = self.log(row("Alloc", 4096, 1, 0.1))
        words = ["export", log, "--to", "chrome-trace"]
        self.assertIn("cannot write /nowhere/x: No such file", self.refusal(*words, "-o", "/nowhere/x", status=1))
        self.assertIn("cannot write /dev/full: No space left", self.refusal(*words, "-o", "/dev/full", status=1))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        self.assertIn("/y: File too large",
                      self.refusal(*words, "-o", self.folder / "y", status=1, preexec_fn=limit))

    def test_options_that_do_not_go_together_are_wrong_usage(self):
        log = self.log(row("Alloc", 4096, 1, 0.1))
        self.assertIn("--device is for snapshots and Kineto traces", self.refusal("import", log, "--from", "rmm", "--device", 0))
        done = emm("export", log, "--to", "torch-snapshot", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["error"]["message"]),
                         (2, "export: --json needs -o FILE"))

    def test_the_log_of_a_killed_program_without_a_row_is_an_empty_export(self):
        self.assertEqual(pickle.load(io.BytesIO(self.output("export", self.log(), "--to", "torch-snapshot"))),
                         {"device_traces": [], "segments": []})


# Python has no sanitizer's runtime, which the interposer would need then.
@unittest.skipIf(os.environ["EMM_TEST_RECORDS"] == "0", "no interposer that this Python can load")
class Recording(Case):
    def test_a_recorded_program_replayed_has_the_peak_of_its_run(self):
        program, log = self.file("program.py", PROGRAM), self.folder / "log.csv"
        for plugin in ("passthrough", "pool", "async"):
            peak = int(self.output("run", "--plugin", plugin, "--record", log, "--", "python3", program))
            result = answer("replay", log, "--plugin", plugin)["results"][0]
            self.assertLessEqual(abs(result["peak_live_bytes"] - peak), peak * 0.02)
            self.assertEqual((result["events"], result["failed"], result["leaked"]), (2000, 0, 0))


if __name__ == "__main__":
    unittest.main()
