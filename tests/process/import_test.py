#!/usr/bin/env python3
"""The traces that `emm import` makes of recordings of PyTorch and RMM."""
import gzip
import json
import os
import pickle
import re
import resource
import subprocess
import unittest

from emm_program import answer
from exchange_samples import RMM_HEADER, SANITIZERS, Case, emm, event, row, snapshot


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

    def test_the_snapshots_of_several_ranks_are_refused_as_such(self):
        path = self.file("s.pickle", pickle.dumps([snapshot(event("alloc", 0x1000, 10, 1))] * 2))
        self.assertIn("expected one snapshot, a rank's in a file of its own, found a list of 2",
                      self.refusal("import", path))

    def test_blocks_that_many_segments_share_take_no_more_memory_than_the_file(self):
        block = {"address": 4096, "size": 1, "requested_size": 1, "state": "active_allocated"}
        segment = {"device": 0, "address": 4096, "total_size": 1, "stream": 0, "blocks": [block] * 8000}
        path = self.file("s.pickle", pickle.dumps({"segments": [segment] * 8000, "device_traces": [[]]}))
        limit = None if SANITIZERS != "none" else \
            lambda: resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))
        self.assertIn("expected blocks of its own, found those of other segments again and again",
                      self.refusal("import", path, preexec_fn=limit))

    def test_a_device_is_chosen_where_there_are_several(self):
        told = snapshot(event("alloc", 0x1000, 10, 1))
        told["device_traces"].append([event("alloc", 0x1000, 20, 1)])
        path = self.file("s.pickle", pickle.dumps(told))
        self.assertIn("expected --device with one of the devices 0, 1, found none", self.refusal("import", path))
        self.assertIn("found 7", self.refusal("import", path, "--device", 7))
        self.assertEqual(self.rows(path, "--device", 1), ["0,0,0,alloc,0,20"])
        self.assertEqual(self.logged_devices(path, "--device", 1), ["1"])

    def test_an_event_log_names_the_only_device_of_the_snapshot(self):
        told = snapshot(event("alloc", 0x1000, 10, 1))
        told["device_traces"].insert(0, [])
        self.assertEqual(self.logged_devices(self.file("s.pickle", pickle.dumps(told))), ["1"])

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

    def test_segments_without_a_size_are_refused(self):
        broken = event("segment_alloc", 0x1000, 10, 1)
        del broken["size"]
        path = self.file("s.pickle", pickle.dumps(snapshot(event("alloc", 0x1000, 10, 1), broken)))
        self.assertIn("segments of device 0: expected a whole number for size, found none", self.refusal("import", path))

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

    def test_what_was_allocated_before_is_that_of_the_first_thread(self):
        path = self.file("rmm.csv", RMM_HEADER + "5,00:00:00.000001,free,0x7f00,100,0x0\n")
        self.assertEqual(self.rows(path), ["0,0,0,alloc,0,100", "0,0,0,free,0,100"])
        self.assertEqual(answer("import", path, "-o", self.folder / "t.csv")["threads"], 1)

    def test_a_device_is_refused_however_the_format_is_found(self):
        path = self.file("rmm.csv", RMM_HEADER + "5,00:00:00.000001,allocate,0x7f00,100,0x0\n")
        for more in ((), ("--from", "rmm"), ("--to", "event-log")):
            self.assertIn("an RMM log has no devices", self.refusal("import", path, "--device", 7, *more))

    def test_more_bytes_than_a_number_holds_are_refused(self):
        path = self.file("rmm.csv", RMM_HEADER + "".join(
            f"5,00:00:00.000001,allocate,0x{address},{1 << 63},0x0\n" for address in (100, 200)))
        self.assertIn("expected live blocks of less than 2^64 bytes, found more", self.refusal("import", path))

    def test_a_line_that_makes_no_sense_is_refused(self):
        for line in ("5,00:00:00.000001,allocate,0x7f00,-1,0x0", "\x1b[2J", "5,,,,,", "5,00:00:00.000001,allocate"):
            self.assertIn("rmm.csv, line 2: expected",
                          self.refusal("import", self.file("rmm.csv", RMM_HEADER + line + "\n")))
        self.assertIn("expected allocations of device memory, found none",
                      self.refusal("import", self.file("rmm.csv", RMM_HEADER)))

    def test_a_log_with_the_lines_of_others_is_refused_and_told_how_to_get_its_own(self):
        other, own = "26/08/01 14:21:18 WARN Plugins: enabled\n", "5,00:00:00.000001,allocate,0x7f00,1024,0x0\n"
        for content in (other + RMM_HEADER + own, RMM_HEADER + other + own):
            path = self.file("rmm.csv", content)
            pattern, = re.findall("grep -E '(.*)' FILE", self.refusal("import", path))
            kept = subprocess.run(["grep", "-E", pattern, path], stdout=subprocess.PIPE, check=True).stdout
            self.assertEqual(kept.decode(), RMM_HEADER + own)

    def test_an_event_log_is_refused_and_told_what_takes_it(self):
        self.assertIn("found an event log, which emm replay and emm report take as it is",
                      self.refusal("import", self.log(row("Alloc", 4096, 1, 0.1))))


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

    def test_an_event_log_names_the_only_device_of_the_trace(self):
        self.assertEqual(self.logged_devices(self.trace(self.memory(1, 512, 4096, device=3))), ["3"])

    def test_an_array_of_events_is_a_trace_too(self):
        path = self.file("kineto.json", json.dumps([self.memory(1, 512, 4096)]))
        self.assertEqual(self.rows(path), ["0,0,0,alloc,0,512"])

    def test_memory_from_before_the_recording_is_allocated_first(self):
        trace = self.folder / "t.csv"
        for freed, blocks in ((4096, 1), (8192, 2)):
            path = self.trace(self.memory(10, 500, 4096, **{"Total Allocated": 1600}),
                              self.memory(20, -500, freed, **{"Total Allocated": 1100}))
            told = answer("import", path, "-o", trace)
            self.assertEqual((told["live_before"], told["live_before_bytes"], told["peak_live_bytes"]),
                             (blocks, 1100, 1600))
        self.assertIn("it began later", self.output("import", path, "-o", trace).decode())

    def test_gpus_of_other_makers_are_read_too(self):
        for kind in (6, 12):
            path = self.trace(self.memory(1, 512, 4096, kind=kind), self.memory(2, -512, 4096, kind=kind))
            self.assertEqual(self.rows(path), ["0,0,0,alloc,0,512", "1,0,0,free,0,512"])

    def test_without_addresses_frees_are_matched_by_size_and_that_is_told(self):
        events = [self.memory(i, change, 0) for i, change in enumerate((512, 64, 512, -64, -512, -512, -8))]
        for event in events:
            del event["args"]["Addr"]
        path = self.trace(*events)
        self.assertEqual(self.rows(path),
                         ["0,0,0,alloc,0,8", "0,0,0,alloc,1,512", "1,0,0,alloc,2,64", "2,0,0,alloc,3,512",
                          "3,0,0,free,2,64", "4,0,0,free,3,512", "5,0,0,free,1,512", "6,0,0,free,0,8"])
        told = answer("import", path, "-o", self.folder / "t.csv")
        self.assertEqual((told["matched_by_size"], told["live_before"], told["stray_frees"]), (True, 1, 0))
        self.assertIn("has no addresses", self.output("import", path, "-o", self.folder / "t.csv").decode())

    def test_a_trace_without_memory_is_refused(self):
        lack = "expected [memory] events of a GPU, which torch.profiler records with profile_memory=True, found "
        self.assertIn(lack + "none", self.refusal("import", self.trace()))
        self.assertIn(lack + "those of other devices alone", self.refusal("import", self.trace(self.memory(1, 2, 3, kind=0))))
        self.assertIn("found the memory timeline of export_memory_timeline",
                      self.refusal("import", self.file("raw.json", "[[10, 0, 100, 1], [20, 3, 100, 1]]")))
        self.assertIn("expected traceEvents of a Chrome trace, found none",
                      self.refusal("import", self.file("kineto.json", "{}")))

    def test_hostile_json_is_refused(self):
        for text in ("{", "[" * 100000, '{"traceEvents": [NaN]}', '{"traceEvents": [1e999]}', "{\"\x1b\": 1}",
                     '{"traceEvents": ["\xff\xfe"]}'.encode("latin-1"), '{"traceEvents": []} x'):
            self.assertRegex(self.refusal("import", self.file("kineto.json", text)), r"kineto.json, byte \d+: expected")
        for args in ({"Addr": -1}, {"Addr": 1.5}, {"Total Allocated": -1}, {"Bytes": 1.5}, {"Device Id": -1}):
            self.assertIn("of [memory], found", self.refusal("import", self.trace(self.memory(1, 2, 3) | {
                "args": {"Bytes": 4, "Addr": 5, "Device Id": 0, "Device Type": 1, **args}})))


if __name__ == "__main__":
    unittest.main(verbosity=2)
