#!/usr/bin/env python3
"""What `emm` exchanges with other tools: `export`, `import` and `replay -`. No test needs PyTorch, RMM or
Perfetto: the samples are written here, in their formats."""
import gzip
import io
import json
import os
import pathlib
import pickle
import pickletools
import resource
import subprocess
import tempfile
import unittest

from emm_program import EMM, HEADER, answer

SANITIZERS = os.environ["EMM_TEST_SANITIZERS"]
LOG_HEADER = ("Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,"
              "Current Allocs,Start,End,Elapsed,Location\n")
RMM_HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
CALLER = "/usr/lib/liba.so+0x12 (work(int)+0x3)"
# What the viewer at pytorch.org/memory_viz reads.
VIEWER = {"PROTO", "MARK", "STOP", "EMPTY_DICT", "SETITEMS", "EMPTY_LIST", "APPENDS", "BINUNICODE", "LONG_BINPUT",
          "BINGET", "LONG_BINGET", "BININT", "BININT1", "BININT2", "LONG1", "NEWTRUE", "NEWFALSE"}
# A program on the driver that says how much it had allocated at most.
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


def emm(*words, stdin=b"", preexec_fn=None, **variables):
    """The finished process, with bytes as its output."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("EMM_") or key == "EMM_DRIVER"}
    return subprocess.run([EMM, *map(str, words)], env={**environment, **variables}, input=stdin,
                          capture_output=True, timeout=300, check=False, preexec_fn=preexec_fn)


def row(event, address, size, time, stream="0", device=0, caller=CALLER):
    quoted = '"' + caller.replace('"', '""') + '"'
    return (f"{event},{device},{address:#x},{stream},{size},600,1000,1,{time:.9f},{time + 1e-6:.9f},"
            f"0.000001000,{quoted}\n")


def event(action, addr, size, time, stream=0):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": time,
            "frames": [{"name": "f", "filename": "a.py", "line": 3}]}


def snapshot(*events, live=()):
    """As torch.cuda.memory._snapshot() gives it; `live` are pairs of address and size."""
    blocks = [{"address": address, "size": 512, "requested_size": size, "state": "active_allocated",
               "frames": []} for address, size in live]
    segments = [{"device": 0, "address": block["address"], "total_size": 512, "stream": 0,
                 "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [block]} for block in blocks]
    return {"segments": segments, "device_traces": [list(events)],
            "allocator_settings": {"max_split_size": -1, "garbage_collection_threshold": 0.5,
                                   "expandable_segments": False}}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def log(self, *rows):
        return self.file("log.csv", LOG_HEADER + "".join(rows))

    def output(self, *words, **options):
        done = emm(*words, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refusal(self, *words, status=2, **options):
        """The sentence; nothing else is written, and no file is left."""
        before = sorted(self.folder.iterdir())
        done = emm(*words, **options)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done.stderr)
        self.assertTrue(done.stderr.startswith(b"emm: "), done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertFalse(any(byte < 32 and byte != 10 for byte in done.stderr), done.stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before)
        return done.stderr.decode()

    def rows(self, path, *words):
        text = self.output("import", path, *words).decode()
        self.assertTrue(text.startswith(HEADER))
        return text.splitlines()[1:]


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
        self.assertIn("standard input cannot be copied: /nowhere: No such file or directory",
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

    def test_hostile_callers_are_escaped(self):
        name = '/a"\\\x1b<script>+0x1 (f("x")+0x1)'
        begin = next(event for event in self.exported(row("Alloc", 4096, 1, 0.1, caller=name)) if event["ph"] == "b")
        self.assertEqual(begin["args"]["caller"], name)


class FromSnapshot(Case):
    def test_every_protocol_gives_the_same_rows(self):
        told = snapshot(event("segment_alloc", 0x9000, 4096, 1000), event("alloc", 0x9000, 3000, 1005, 7),
                        {"action": "oom", "device_free": 5, "size": 9, "stream": 0, "time_us": 1006},
                        event("free_requested", 0x9000, 3000, 1010, 7), event("free_completed", 0x9000, 3000, 1011, 7))
        for protocol in (2, 3, 4, 5):
            path = self.file("s.pickle", pickle.dumps(told, protocol=protocol))
            self.assertEqual(self.rows(path), ["0,0,0,alloc,0,3000", "1,0,0,mark,0,0", "5,0,0,free,0,3000"])

    def test_what_the_ring_has_lost_is_allocated_first_and_told(self):
        told = snapshot(event("free_requested", 0x8000, 512, 1000), event("alloc", 0x8000, 100, 1001),
                        live=[(0x4000, 300), (0x8000, 100)])
        path, trace = self.file("s.pickle", pickle.dumps(told)), self.folder / "t.csv"
        result = answer("import", path, "-o", trace)
        self.assertEqual((result["live_before"], result["live_before_bytes"], result["peak_live_bytes"]),
                         (2, 812, 812))
        self.assertEqual(trace.read_text().splitlines()[1:],
                         ["0,0,0,alloc,0,512", "0,0,0,alloc,1,300", "0,0,0,free,0,512", "1,0,0,alloc,2,100"])
        said = self.output("import", path, "-o", trace).decode()
        self.assertIn("The recording lacks the allocations of 2 blocks (812 B): the snapshot's ring has lost them", said)

    def test_sizes_are_told_to_people_in_units_and_to_scripts_in_bytes(self):
        path = self.file("s.pickle", pickle.dumps(snapshot(live=[(0x4000, 3 << 20), (0x800000, 512 << 10)])))
        trace = self.folder / "t.csv"
        self.assertIn("at most 3.5 MiB live\n", self.output("import", path, "-o", trace).decode())
        self.assertEqual(answer("import", path, "-o", trace)["peak_live_bytes"], 7 << 19)
        log = self.log(row("Alloc", 0x1000, 7 << 19, 0.1))
        self.assertIn("at most 3.5 MiB live\n", self.output("events", log).decode())
        self.assertEqual(answer("events", log)["peak_live_bytes"], 7 << 19)

    def test_a_snapshot_without_history_is_its_blocks(self):
        told = snapshot(live=[(0x4000, 300)])
        for content in (told, told["segments"]):
            self.assertEqual(self.rows(self.file("s.pickle", pickle.dumps(content))), ["0,0,0,alloc,0,300"])

    def test_a_device_is_chosen_where_there_are_several(self):
        told = snapshot(event("alloc", 0x1000, 10, 1))
        told["device_traces"].append([event("alloc", 0x1000, 20, 1)])
        path = self.file("s.pickle", pickle.dumps(told))
        self.assertIn("expected --device with one of the devices 0, 1, found none", self.refusal("import", path))
        self.assertIn("found 7", self.refusal("import", path, "--device", 7))
        self.assertEqual(self.rows(path, "--device", 1), ["0,0,0,alloc,0,20"])

    def test_code_in_a_pickle_is_never_run(self):
        witness = self.folder / "witness"

        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(witness),)

        for protocol, opcode in ((2, "GLOBAL"), (4, "STACK_GLOBAL")):
            path = self.file("s.pickle", pickle.dumps({"segments": [Evil()]}, protocol=protocol))
            self.assertRegex(self.refusal("import", path), rf"s.pickle, byte \d+: expected the opcodes of a snapshot, "
                                                           rf"which call nothing, found {opcode}\n")
        self.assertFalse(witness.exists())

    def test_numbers_that_make_no_sense_are_refused_by_their_event(self):
        for key, value, found in (("size", -5, "found -5"), ("size", float("nan"), "found something else"),
                                  ("addr", 1 << 70, "found something else"), ("time_us", "x", "found something else")):
            told = snapshot(event("alloc", 0x1000, 10, 1), {**event("alloc", 0x2000, 10, 1), key: value})
            sentence = self.refusal("import", self.file("s.pickle", pickle.dumps(told)))
            self.assertIn(f"event 2 of device 0: expected a whole number for {key}, {found}", sentence)

    def test_a_pickle_that_was_cut_short_is_refused_at_every_length(self):
        whole = pickle.dumps(snapshot(event("alloc", 0x1000, 10, 1), live=[(0x4000, 300)]))
        for length in range(2, len(whole) - 1, 97):
            self.assertIn("expected a pickle that is whole",
                          self.refusal("import", self.file("s.pickle", whole[:length])))

    def test_a_large_snapshot_takes_little_memory_for_its_call_stacks(self):
        frames = [{"name": f"function {i}" * 20, "filename": "a.py" * 20, "line": i} for i in range(40)]
        events = [{**event("alloc", 0x1000 * (i + 1), 10, i), "frames": [dict(frame) for frame in frames]}
                  for i in range(2000)]
        path = self.file("s.pickle", pickle.dumps(snapshot(*events)))
        limit = None if SANITIZERS != "none" else \
            lambda: resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))
        self.assertEqual(len(self.output("import", path, preexec_fn=limit).splitlines()), 2001)


class FromRmm(Case):
    def test_threads_streams_and_midnight_are_kept(self):
        path = self.file("rmm.csv", RMM_HEADER + "5,23:59:59.999999,allocate,0x7f00,1024,0x0\n"
                                                 "6,00:00:00.000001,allocate,0x7f01,100,0x5\n"
                                                 "6,00:00:00.000003,allocate failure,(nil),9999,0x5\n"
                                                 "5,00:00:00.000005,free,0x7f00,1024,0x0\n")
        self.assertEqual(self.rows(path), ["0,0,0,alloc,0,1024", "2,1,1,alloc,1,100", "6,0,0,free,0,1024"])

    def test_frees_that_are_missing_and_strays_are_told(self):
        path = self.file("rmm.csv", RMM_HEADER + "".join(
            f"5,00:00:00.00000{i},{action},0x7f00,{size},0x0\n" for i, (action, size) in enumerate(
                [("allocate", 10), ("allocate", 20), ("free", 20), ("free", 20)])))
        result = answer("import", path, "-o", self.folder / "t.csv")
        self.assertEqual((result["allocations"], result["frees"], result["missed_frees"], result["stray_frees"]),
                         (2, 2, 1, 1))
        self.output("replay", self.folder / "t.csv", "--plugin", "passthrough")

    def test_a_line_that_makes_no_sense_is_refused(self):
        for line in ("5,00:00:00.000001,allocate,0x7f00,-1,0x0", "\x1b[2J", "5,,,,,", "5,00:00:00.000001,allocate"):
            self.assertIn("rmm.csv, line 2: expected",
                          self.refusal("import", self.file("rmm.csv", RMM_HEADER + line + "\n")))
        self.assertIn("expected allocations of device memory, found none",
                      self.refusal("import", self.file("rmm.csv", RMM_HEADER)))


class FromKineto(Case):
    @staticmethod
    def memory(time, change, address, device=0, kind=1, **more):
        return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 2, "ts": time,
                "args": {"Total Reserved": 9, "Bytes": change, "Addr": address, "Device Id": device,
                         "Device Type": kind, **more}}

    def trace(self, *events, packed=False):
        content = json.dumps({"schemaVersion": 1, "traceEvents": [
            {"ph": "X", "name": "aten::mm", "ts": 1, "args": {"Input Dims": [[1, 2]], "Bytes": 7}}, *events]}).encode()
        return self.file("kineto.json", gzip.compress(content) if packed else content)

    def test_memory_events_of_gpus_are_sorted_by_time(self):
        events = [self.memory(20.5, -512, 4096), self.memory(10.25, 512, 4096), self.memory(5, 64, 8192, -1, 0)]
        for packed in (False, True):
            self.assertEqual(self.rows(self.trace(*events, packed=packed)), ["0,0,0,alloc,0,512", "10,0,0,free,0,512"])

    def test_an_array_of_events_is_a_trace_too(self):
        path = self.file("kineto.json", json.dumps([self.memory(1, 512, 4096)]))
        self.assertEqual(self.rows(path), ["0,0,0,alloc,0,512"])

    def test_a_trace_without_memory_is_refused(self):
        self.assertIn("expected allocations of device memory, found none", self.refusal("import", self.trace()))
        self.assertIn("expected traceEvents of a Chrome trace, found none",
                      self.refusal("import", self.file("kineto.json", "{}")))

    def test_hostile_json_is_refused(self):
        for text in ("{", "[" * 100000, '{"traceEvents": [NaN]}', '{"traceEvents": [1e999]}', "{\"\x1b\": 1}",
                     '{"traceEvents": ["\xff\xfe"]}'.encode("latin-1"), '{"traceEvents": []} x'):
            self.assertRegex(self.refusal("import", self.file("kineto.json", text)), r"kineto.json, byte \d+: expected")
        for args in ({"Addr": -1}, {"Addr": 1.5}, {"Bytes": 1.5}, {"Device Id": -1}):
            self.assertIn("of [memory], found", self.refusal("import", self.trace(self.memory(1, 2, 3) | {
                "args": {"Bytes": 4, "Addr": 5, "Device Id": 0, "Device Type": 1, **args}})))


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

    def test_what_cannot_be_written_is_a_failure_and_said(self):
        log = self.log(row("Alloc", 4096, 1, 0.1))
        words = ["export", log, "--to", "chrome-trace"]
        self.assertIn("/nowhere/x cannot be written: No such file", self.refusal(*words, "-o", "/nowhere/x", status=1))
        self.assertIn("/dev/full cannot be written: No space left", self.refusal(*words, "-o", "/dev/full", status=1))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        self.assertIn("cannot be written: File too large",
                      self.refusal(*words, "-o", self.folder / "y", status=1, preexec_fn=limit))

    def test_options_that_do_not_go_together_are_wrong_usage(self):
        log = self.log(row("Alloc", 4096, 1, 0.1))
        for words, sentence in ((["export", log, "--to", "chrome-trace", "--last", 3], "expected --last with"),
                                (["import", log, "--from", "rmm", "--device", 0], "expected --device with")):
            self.assertIn(sentence, self.refusal(*words))
        done = emm("export", log, "--to", "torch-snapshot", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["error"]["message"]),
                         (2, "export: expected -o FILE with --json, found none"))

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
