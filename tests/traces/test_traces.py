"""The recording scripts, without a GPU: each test's name is the sentence that it proves."""
import gzip
import importlib.util
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import snapshot_to_trace
from snapshot_to_trace import TraceError, compress, convert, describe, fit

PYTHON = [{"filename": "train_gpt.py", "line": 1, "name": "main"}]


def event(action, addr=0, size=0, stream=0, time=0, frames=PYTHON):
    return {"action": action, "addr": addr, "size": size, "stream": stream,
            "time_us": 1_700_000_000_000_000 + time, "frames": frames}


def snapshot(*events):
    return {"segments": [], "device_traces": [list(events), []]}


class Conversion(unittest.TestCase):
    def test_time_starts_at_0_with_the_first_event_and_never_goes_back(self):
        rows = convert(snapshot(event("segment_alloc", 1, 9, time=3), event("alloc", 1, 9, time=5),
                                event("alloc", 2, 9, time=9), event("alloc", 3, 9, time=8)))
        self.assertEqual([row[0] for row in rows], [0, 4, 4])

    def test_a_free_counts_when_the_program_lets_go_not_when_it_completes(self):
        rows = convert(snapshot(event("alloc", 1, 9, time=0), event("free_requested", 1, 9, time=2),
                                event("alloc", 2, 8, time=4), event("free_completed", 1, 9, time=6)))
        self.assertEqual([(row[0], row[3], row[4]) for row in rows],
                         [(0, "alloc", 0), (2, "free", 0), (4, "alloc", 1)])

    def test_an_address_that_comes_back_is_a_new_allocation(self):
        rows = convert(snapshot(event("alloc", 1, 9), event("free_requested", 1, 9),
                                event("free_completed", 1, 9), event("alloc", 1, 7),
                                event("free_requested", 1, 7)))
        self.assertEqual([(row[3], row[4], row[5]) for row in rows],
                         [("alloc", 0, 9), ("free", 0, 9), ("alloc", 1, 7), ("free", 1, 7)])

    def test_streams_are_numbered_by_first_appearance(self):
        rows = convert(snapshot(event("alloc", 1, 9, stream=7040), event("alloc", 2, 9, stream=0),
                                event("free_requested", 1, 9, stream=7040)))
        self.assertEqual([row[2] for row in rows], [0, 1, 0])

    def test_an_event_without_a_python_frame_is_autograds(self):
        rows = convert(snapshot(event("alloc", 1, 9), event("alloc", 2, 9, frames=[])))
        self.assertEqual([row[1] for row in rows], [0, 1])

    def test_a_history_without_any_frames_is_one_thread(self):
        rows = convert(snapshot(event("alloc", 1, 9, frames=[]), event("alloc", 2, 9, frames=[])))
        self.assertEqual([row[1] for row in rows], [0, 0])

    def test_a_mark_stands_where_its_snapshot_was_taken(self):
        rows = convert(snapshot(event("snapshot"), event("alloc", 1, 9), event("snapshot", time=3),
                                event("free_requested", 1, 9, time=4), event("snapshot", time=5)),
                       marks=[0, 1])
        self.assertEqual(rows, [(0, 0, 0, "mark", 0, 0), (0, 0, 0, "alloc", 0, 9),
                                (3, 0, 0, "mark", 1, 0), (4, 0, 0, "free", 0, 9)])

    def test_what_the_allocator_asks_of_cuda_is_left_out(self):
        out_of_memory = {"action": "oom", "device_free": 5, "size": 9, "stream": 0, "time_us": 1}
        rows = convert(snapshot(event("segment_alloc", 1, 99), event("segment_map", 1, 99),
                                out_of_memory, event("segment_free", 1, 99)))
        self.assertEqual(rows, [])


class Refusals(unittest.TestCase):
    def refused(self, text, *arguments, **options):
        with self.assertRaisesRegex(TraceError, text):
            convert(*arguments, **options)

    def test_a_full_history_is_refused_because_its_beginning_is_lost(self):
        self.refused("full at 2 entries", snapshot(event("alloc", 1, 9), event("alloc", 2, 9)),
                     max_entries=2)

    def test_a_free_of_an_unknown_address_is_refused(self):
        self.refused("0xab is freed and was never given out",
                     snapshot(event("free_requested", 0xab, 9)))

    def test_an_address_given_out_twice_is_refused(self):
        self.refused("given out twice", snapshot(event("alloc", 1, 9), event("alloc", 1, 9)))

    def test_marks_that_the_history_lacks_are_named(self):
        self.refused(r"marks of steps \[2\]", snapshot(event("snapshot")), marks=[1, 2])

    def test_events_on_two_devices_are_refused(self):
        two = {"device_traces": [[event("alloc", 1, 9)], [event("alloc", 2, 9)]]}
        self.refused("found them on 2", two)


class Files(unittest.TestCase):
    ROWS = [(0, 0, 0, "mark", 0, 0), (0, 0, 0, "alloc", 0, 512), (1, 0, 0, "mark", 1, 0),
            (2, 1, 1, "alloc", 1, 256), (3, 0, 0, "free", 0, 512), (4, 0, 0, "mark", 2, 0)]

    def test_the_same_rows_give_the_same_bytes(self):
        self.assertEqual(compress(self.ROWS), compress(list(self.ROWS)))
        self.assertEqual(compress(self.ROWS)[4:8], b"\0\0\0\0", "gzip's own time stamp is 0")

    def test_a_file_begins_with_the_header_and_has_a_line_a_row(self):
        lines = gzip.decompress(compress(self.ROWS)).decode().splitlines()
        self.assertEqual(lines[0], "time,thread,stream,op,id,size")
        self.assertEqual(lines[4], "2,1,1,alloc,1,256")
        self.assertEqual(len(lines), 1 + len(self.ROWS))

    def test_a_recording_that_is_too_large_ends_with_a_whole_step(self):
        limit = len(compress(self.ROWS)) - 1
        rows, packed, kept = fit(self.ROWS, limit)
        self.assertLessEqual(len(packed), limit)
        self.assertEqual((rows, kept), (self.ROWS[:5], 1))

    def test_a_recording_that_fits_is_left_whole(self):
        self.assertEqual(fit(self.ROWS, 10_000), (self.ROWS, compress(self.ROWS), None))

    def test_the_description_counts_what_is_alive_and_its_peak(self):
        figures = describe(self.ROWS)
        self.assertEqual((figures["allocations"], figures["frees"]), (2, 1))
        self.assertEqual((figures["alive at the end"], figures["peak live bytes"]), (1, 768))
        self.assertEqual((figures["threads"], figures["streams"], figures["marks"]), (2, 2, 3))


def faults(text):
    """The faults of a trace, by the rules in README.md."""
    lines = text.splitlines()
    if not lines or lines[0] != snapshot_to_trace.HEADER:
        return ["the header is missing"]
    found, live, seen, clock = [], {}, set(), 0
    for number, line in enumerate(lines[1:], start=2):
        time, _, _, op, name, size = line.split(",")
        if int(time) < clock:
            found.append(f"line {number}: time goes back")
        clock = int(time)
        if op == "alloc":
            if name in seen:
                found.append(f"line {number}: id {name} is used again")
            if int(size) <= 0:
                found.append(f"line {number}: size {size}")
            seen.add(name)
            live[name] = size
        elif op == "free":
            if live.pop(name, None) != size:
                found.append(f"line {number}: free of id {name} with size {size}")
        elif op != "mark":
            found.append(f"line {number}: op {op}")
    return found


class Recordings(unittest.TestCase):
    def test_every_recording_here_is_well_formed_and_small(self):
        for path in sorted(HERE.glob("*.csv.gz")):
            with self.subTest(path.name):
                self.assertLess(path.stat().st_size, 300_001)
                self.assertEqual(faults(gzip.decompress(path.read_bytes()).decode()), [])

    def test_each_way_of_being_ill_formed_is_noticed(self):
        head = snapshot_to_trace.HEADER + "\n"
        for rows in ("5,0,0,alloc,1,9\n4,0,0,alloc,2,9", "0,0,0,alloc,1,9\n0,0,0,alloc,1,9",
                     "0,0,0,alloc,1,0", "0,0,0,free,1,9", "0,0,0,alloc,1,9\n0,0,0,free,1,8",
                     "0,0,0,move,1,9"):
            self.assertEqual(len(faults(head + rows)), 1, rows)
        self.assertEqual(faults("time,op\n"), ["the header is missing"])


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class Programs(unittest.TestCase):
    def run_program(self, name, *options):
        small = ("--device", "cpu", "--layers", "1", "--width", "32")
        done = subprocess.run([sys.executable, str(HERE / name), *small, *options],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_training_runs_without_a_gpu(self):
        self.assertIn("step 8: loss", self.run_program("train_gpt.py", "--steps", "8", "--batch", "2"))

    def test_inference_runs_without_a_gpu(self):
        self.assertIn("3 requests", self.run_program("infer_gpt.py", "--requests", "3"))


if __name__ == "__main__":
    unittest.main()
