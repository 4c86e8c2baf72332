#!/usr/bin/env python3
"""`emm report`: its figures are those of the recording, whatever names are in it, and bad input leaves nothing."""
import base64
import collections
import json
import pathlib
import pickle
import re
import subprocess
import unittest

import exchange_samples
from emm_program import EMM, HEADER, answer, run
from exchange_samples import event, snapshot
from report_sample import DROPPING, HOSTILE, LOG_HEADER, counted, dropping_log, events_of, random_log, row

TRACES = pathlib.Path(__file__).resolve().parent.parent / "traces"
CALLERS = ["/usr/lib/liba.so+0x12 (work(int)+0x3)", "/usr/lib/liba.so+0x40 (work(int)+0x31)",
           "/usr/lib/libb.so+0x99", ""]


def data_of(page):
    """The data that the page draws. The element ends where the first tag begins."""
    text = pathlib.Path(page).read_text(encoding="ascii")
    start = text.index('id="data">') + len('id="data">')
    return json.loads(text[start:text.index("<", start)])


def numbers_in(text, count):
    """The numbers of a column: seven bits a byte, the lowest first; a single number stands for all rows."""
    numbers, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    return numbers * count if len(numbers) == 1 else numbers


def blocks_of(table):
    """(address, size, begin, end or None, first event, last event or None, call site) of each block that the page has."""
    columns = {name: numbers_in(text, table["count"]) for name, text in table["columns"].items()}
    lowest, first, begin = int(table["first_address"] or "0", 16), 0, 0
    for i in range(table["count"]):
        first, begin = first + columns["event"][i], begin + columns["begin"][i]
        is_freed = columns["events"][i] > 0
        yield (lowest + columns["address"][i], columns["size"][i], begin, begin + columns["lived"][i] if is_freed else None,
               first, first + columns["events"][i] if is_freed else None, columns["site"][i])


def blocks_in(path):
    """The same of a recording, counted here anew, without the call sites."""
    live, blocks = {}, []
    for number, (is_free, key, size, time, _) in enumerate(events_of(path)):
        if is_free:
            live.pop(key)[3:6:2] = time, number
        else:
            live[key] = [int(key, 0) if key.startswith("0x") else 0, size, time, None, number, None]
            blocks.append(live[key])
    return [tuple(block) for block in blocks]


def figures_peak(path):
    return counted(path)[0]["peak_live_bytes"]


class Case(exchange_samples.Case):
    def setUp(self):
        super().setUp()
        self.page = self.folder / "page.html"

    def figures(self, *words, status=0, **variables):
        return answer("report", *words, "-o", self.page, status=status, **variables)

    def refusal(self, *words, status=2):
        return super().refusal("report", *words, status=status)

    def check(self, path, figures):
        expected, at_peak, lifetimes = counted(path)
        memory = figures["memory"][0]
        self.assertEqual({key: memory[key] for key in expected}, expected)
        for groups in memory["at_peak"].values():
            self.assertEqual(sum(group["bytes"] for group in groups), expected["peak_live_bytes"])
        drawn = data_of(self.page)["memory"][0]
        self.assertEqual(max(drawn["buckets"]["high"]), expected["peak_live_bytes"])
        self.assertEqual(sum(bar[1] for bar in drawn["lifetimes"]), len(lifetimes))
        self.assertEqual([block[:6] for block in blocks_of(drawn["table"])], blocks_in(path))
        for bar, following in zip(drawn["lifetimes"], drawn["lifetimes"][1:]):
            self.assertEqual(bar[1], sum(bar[0] <= time < following[0] for time in lifetimes))
        return memory, at_peak


class Figures(Case):
    def test_figures_of_a_trace_are_those_that_are_counted_here(self):
        for name in ("train_gpt.csv.gz", "infer_gpt.csv.gz"):
            figures = self.figures(TRACES / name)
            self.check(TRACES / name, figures)
            self.assertEqual(figures["kind"], "trace")
            self.assertIsNone(data_of(self.page)["memory"][0]["map"])

    def test_figures_of_a_log_are_those_that_are_counted_here_with_who_called(self):
        path = self.file("log.csv", random_log(20000, CALLERS))
        memory, at_peak = self.check(path, self.figures(path))
        expected = collections.Counter()
        for size, caller in at_peak:
            expected["work(int) in liba.so" if "work" in caller else "0x99 in libb.so" if caller else "unknown"] += size
        self.assertEqual({group["name"]: group["bytes"] for group in memory["at_peak"]["caller"]}, expected)
        drawn = data_of(self.page)["memory"][0]
        self.assertEqual(drawn["group"], "library")
        moment = next(at for at in drawn["map"]["moments"] if at["event"] == memory["peak_event"])
        self.assertEqual(moment["live"], memory["peak_live_bytes"])

    def test_each_block_and_event_has_the_name_of_its_pool_where_there_are_several(self):
        first_pool, name = 1 << 31, "kv-cache (context 3)"

        def rows(*contexts):
            of_pool = [(row("Pool", 0, 0, 0.5, name), first_pool)] if first_pool in contexts else []
            rows = of_pool + [(row("Alloc", 4096 * (i + 1), 1000 * (i + 1), 1 + i, "a"), context) for i, context in enumerate(contexts)]
            rows.append((row("Alloc Failure", 0, 77, 8, "a"), contexts[-1]))
            return LOG_HEADER.replace("\n", ",Context\n") + "".join(line.replace("\n", f",{context}\n") for line, context in rows)

        memory = self.figures(self.file("log.csv", rows(3, first_pool)))["memory"][0]
        self.assertEqual({group["name"]: group["bytes"] for group in memory["at_peak"]["pool"]}, {"context 3": 1000, name: 2000})
        page = data_of(self.page)
        table = page["memory"][0]["table"]
        self.assertEqual([table["pools"][pool] for pool in numbers_in(table["columns"]["pool"], 2)], ["context 3", name])
        self.assertEqual([mark[1] for mark in page["marks"]], [f"Pool, pool {name}", f"Alloc Failure, pool {name}"])
        self.assertEqual(page["failures"][0]["what"], f"Alloc Failure, pool {name}")
        for contexts in ((3, 3), (first_pool, first_pool)):
            memory = self.figures(self.file("log.csv", rows(*contexts)))["memory"][0]
            self.assertNotIn("pool", memory["at_peak"])

    def test_the_summary_names_the_caller_also_where_there_is_only_one(self):
        for lines, said in (("a",), "all by step in a.so; "), (("a", "b"), "50 % by /lib/a.so"):
            path = self.file("log.csv", LOG_HEADER + "".join(
                row("Alloc", 4096 * (i + 1), 8, 0.1 * i, f"/lib/{name}.so+0x1 (step+0x1)") for i, name in enumerate(lines)))
            self.assertIn(said, run("report", path, "-o", self.page).stdout)

    def test_the_summary_tells_nothing_of_what_had_no_part_in_the_peak(self):
        path = self.file("log.csv", LOG_HEADER + row("Alloc", 4096, 1000, 0.1, "/a.so+0x1 (f+0x1)") +
                         row("Alloc", 8192, 1, 0.2, "/b.so+0x1 (g+0x1)") + row("Free", 4096, 1000, 0.3, "x") +
                         row("Alloc", 4096, 10, 0.4, "/c.so+0x1 (h+0x1)"))
        said = run("report", path, "-o", self.page).stdout
        self.assertIn("100 % by /a.so, under 1 % by /b.so\n", said)

    def test_a_caller_is_the_first_line_outside_of_a_helper_that_all_call(self):
        helper = "/lib/_ctypes.so+0x1\t/venv/site-packages/numba/api.py:5 (device_array)\t/me/train.py:7 (alloc)\t"
        callers = [helper + f"/me/train.py:{line} (step)\t/me/train.py:90 (<module>)" for line in (20, 30)]
        path = self.file("log.csv", random_log(2000, callers))
        memory = self.figures(path)["memory"][0]
        self.assertEqual({group["name"] for group in memory["at_peak"]["caller"]}, {"train.py:20 (step)", "train.py:30 (step)"})
        self.assertEqual(memory["leading"], "caller")
        calls = data_of(self.page)["calls"]
        frames = [calls["texts"][full] for _, full, _ in calls["frames"][1]]
        self.assertEqual(frames[2:], ["/me/train.py:7 (alloc)", frames[3], "/me/train.py:90 (<module>)"])
        self.assertEqual([kind for *_, kind in calls["frames"][1]], [0, 1, 2, 2, 2])

    def test_json_prints_what_the_page_has(self):
        figures = self.figures(TRACES / "infer_gpt.csv.gz")
        self.assertEqual(figures.pop("file"), str(self.page))
        self.assertEqual(data_of(self.page)["figures"], figures)

    def test_each_kind_of_memory_and_each_failure_is_told(self):
        path = self.file("log.csv", LOG_HEADER + row("Alloc", 4096, 10, 0.1, "a") +
                         row("Alloc Host", 4096, 7, 0.2, "a") + row("Alloc Failure", 0, 99, 0.3, CALLERS[0]) +
                         row("Alloc", 8192, 20, 0.4, "a", device=1) + row("Reset", 0, 0, 0.5, "a", stream="-1"))
        figures = self.figures(path)
        self.assertEqual([(one["device"], one["memory"], one["peak_live_bytes"], one["left_bytes"])
                          for one in figures["memory"]],
                         [(1, "device memory", 20, 20), (0, "device memory", 10, 0), (0, "pinned host memory", 7, 0)])
        self.assertEqual(figures["failures"], 1)
        self.assertEqual(data_of(self.page)["failures"],
                         [{"time": 300000000, "what": "Alloc Failure", "size": 99, "free": 600, "site": 2,
                           "caller": "work(int) in liba.so"}])

    def test_what_a_reset_or_the_end_of_a_context_takes_is_dropped_and_not_freed(self):
        path = self.file("log.csv", dropping_log())
        figures = self.figures(path)
        self.assertEqual({key: figures["memory"][0][key] for key in DROPPING}, DROPPING)
        self.assertEqual(figures["events"], 24)
        self.assertEqual([group["name"] for group in figures["memory"][0]["at_peak"]["lifetime"]],
                         ["never freed", "dropped, not freed", "10 to 50 % of the time"])
        drawn = data_of(self.page)["memory"][0]
        self.assertEqual((sum(bar[1] for bar in drawn["lifetimes"]), drawn["unfreed"][1], drawn["dropped"][1]), (2, 1, 17))
        said = run("report", path, "-o", self.page).stdout
        self.assertIn("  17 blocks ended without a free, 9 dropped by a reset, 8 dropped with their context\n", said)
        self.assertIn("90 % in blocks dropped, not freed, ", said)

    def test_standard_input_and_output_do(self):
        text = random_log(500, CALLERS).encode()
        done = subprocess.run([EMM, "report", "-", "-o", "-"], input=text, capture_output=True, check=True)
        self.assertTrue(done.stdout.startswith(b"<!DOCTYPE html>"))
        self.assertIn(b"standard input, event log: 500 events", done.stderr)


class Parts(Case):
    def test_a_part_has_its_events_and_what_was_live_as_it_began(self):
        path = self.file("log.csv", LOG_HEADER + row("Alloc", 0x1000, 100, 1, "a") + row("Alloc", 0x2000, 10, 2, "a") +
                         row("Free", 0x2000, 10, 3, "a") + row("Alloc Failure", 0, 9, 3.5, "a") + row("Alloc", 0x3000, 1, 4, "a") +
                         row("Free", 0x1000, 100, 5, "a") + row("Alloc Failure", 0, 9, 6, "a"))
        figures = self.figures(path, "--from", 2.5, "--to", 4)
        memory = figures["memory"][0]
        self.assertEqual({key: memory[key] for key in ("live_before", "allocations", "frees", "peak_live_bytes", "left_bytes")},
                         {"live_before": 2, "allocations": 1, "frees": 1, "peak_live_bytes": 110, "left_bytes": 101})
        self.assertEqual((figures["events"], figures["failures"], figures["begin_ns"], figures["end_ns"]), (3, 1, 2500000000, 4000000000))
        page = data_of(self.page)["memory"][0]
        self.assertEqual([block[1:6] for block in blocks_of(page["table"])],
                         [(100, 10**9, None, 0, None), (10, 2 * 10**9, 3 * 10**9, 1, 2), (1, 4 * 10**9, None, 3, None)])
        self.assertEqual(numbers_in(page["table"]["columns"]["lived"], 3), [4 * 10**9, 10**9, 0])
        self.assertEqual(page["buckets"]["first_time"][0], 2500000000)
        whole = self.figures(path)
        self.assertEqual(self.figures(path, "--from", 0, "--to", 99)["memory"], whole["memory"])

    def test_a_step_goes_from_its_mark_to_the_next(self):
        path = self.file("trace.csv", HEADER + "0,0,0,mark,0,0\n1,0,0,alloc,1,8\n2,0,0,mark,1,0\n3,0,0,alloc,2,9\n4,0,0,free,1,8\n"
                                               "5,0,0,mark,2,0\n6,0,0,alloc,3,10\n")
        for step, expected in ((0, (0, 1, 8)), (1, (1, 1, 17)), (2, (1, 1, 19))):
            memory = self.figures(path, "--step", step)["memory"][0]
            self.assertEqual((memory["live_before"], memory["allocations"], memory["peak_live_bytes"]), expected, step)
        self.assertIn("expected a mark for --step 3, found none of that number", self.refusal(path, "--step", 3, "-o", self.page))
        log = self.file("log.csv", random_log(50, CALLERS))
        self.assertIn("expected a trace for --step", self.refusal(log, "--step", 3, "-o", self.page))

    def test_a_part_without_memory_or_with_a_replay_is_refused(self):
        path = self.file("log.csv", LOG_HEADER + row("Alloc", 0x1000, 100, 1, "a") + row("Free", 0x1000, 100, 2, "a"))
        self.assertIn("expected a live block in that part", self.refusal(path, "--to", 0.5, "-o", self.page))
        for log in (path, self.file("live.csv", LOG_HEADER + row("Alloc", 0x1000, 100, 1, "a") + row("Alloc", 0x2000, 8, 2, "a"))):
            self.assertIn("expected --from of at most 2 s, where the recording ends, found 3.5 s",
                          self.refusal(log, "--from", 3.5, "-o", self.page))
        self.assertIn("--to: expected a time after --from 3", self.refusal(path, "--from", 3, "--to", 2, "-o", self.page))
        for words in (("--from", 1, "--plugin", "pool"), ("--step", 1, "--from", 1), ("--from", -1)):
            self.assertEqual(run("report", path, *words).returncode, 2, words)

    def test_a_part_that_is_no_number_is_refused_in_a_sentence(self):
        for words, expected in ((("--step", "x"), "a whole number from 0 to 9223372036854775807, found 'x'"),
                                (("--step", 1 << 63), "a whole number from 0 to 9223372036854775807, found '9223372036854775808'"),
                                (("--from", "x"), "a number of 0 or more, found 'x'"),
                                (("--to", -1), "a number of 0 or more, found '-1'"), (("--to", "1s"), "a number of 0 or more, found '1s'")):
            done = run("report", "log.csv", *words)
            self.assertEqual((done.returncode, done.stderr.splitlines()[0]), (2, f"emm: report: {words[0]}: expected {expected}"))


class Tags(Case):
    def test_blocks_are_told_apart_by_the_tags_of_those_who_asked(self):
        place = "/l/a.so+0x1 (f+0x1)\t/me/t.py:7 (step)"
        rows = row("Alloc", 0x1000, 10, 0.1, caller=place), row("Alloc", 0x2000, 20, 0.2, caller=place + "\ttag serve/decode")
        figures = self.figures(self.file("log.csv", LOG_HEADER + "".join(rows)))
        at_peak = figures["memory"][0]["at_peak"]
        self.assertEqual({group["name"]: group["bytes"] for group in at_peak["tag"]}, {"serve/decode": 20, "no tag": 10})
        self.assertEqual({group["name"]: group["bytes"] for group in at_peak["caller"]}, {"t.py:7 (step)": 30})
        self.assertNotIn("tag", self.figures(self.file("plain.csv", LOG_HEADER + rows[0]))["memory"][0]["at_peak"])


class Snapshots(Case):
    def test_the_stacks_of_a_snapshot_and_its_failures_are_on_the_page(self):
        frames = [{"name": name, "filename": file, "line": line} for name, file, line in
                  (("malloc", "??", 0), ("empty", "/v/site-packages/torch/nn.py", 5), ("alloc", "/me/t.py", 7))]
        frames_of = [[*frames, {"name": "f", "filename": "/me/t.py", "line": line}, {"name": "<module>", "filename": "/me/t.py", "line": 90}]
                     for line in (20, 30)]
        events = [{**event("alloc", 0x1000 * (i + 1), 100 * (i + 1), 10 + i), "frames": stack} for i, stack in enumerate(frames_of)]
        events.append({"action": "oom", "device_free": 5, "size": 9, "stream": 0, "time_us": 20, "frames": frames_of[0]})
        path = self.file("s.pickle", pickle.dumps(snapshot(*events)))
        log = self.folder / "log.csv"
        answer("import", path, "--to", "event-log", "-o", log)
        for source, kind in ((path, "PyTorch snapshot"), (log, "event log")):
            figures = self.figures(source)
            memory = figures["memory"][0]
            self.assertEqual(figures["kind"], kind)
            self.assertEqual({group["name"]: group["bytes"] for group in memory["at_peak"]["caller"]},
                             {"t.py:20 (f)": 100, "t.py:30 (f)": 200})
            page = data_of(self.page)
            failure, = page["failures"]
            self.assertEqual((failure["size"], failure["free"], failure["time"], failure["caller"]), (9, 5, 10000, "t.py:20 (f)"))
            stack = [page["calls"]["texts"][full] for _, full, _ in page["calls"]["frames"][1]]
            self.assertEqual(stack, ["/v/site-packages/torch/nn.py:5 (empty)", "/me/t.py:7 (alloc)", "/me/t.py:20 (f)", "/me/t.py:90 (<module>)"])
            self.assertEqual(page["memory"][0]["table"]["first_address"], "0x1000")
        self.assertIn("need an event log or a trace", self.refusal(path, "-o", self.page, "--plugin", "pool"))

    def test_what_pytorch_had_reserved_is_told_by_a_snapshot(self):
        events = [event("free_requested", 0x9000, 50, 1), event("segment_alloc", 0x1000, 4096, 2), event("alloc", 0x1000, 1000, 3),
                  event("free_completed", 0x9000, 50, 4), event("alloc", 0x1400, 2000, 5), event("segment_free", 0x9000, 512, 6),
                  event("free_requested", 0x1000, 1000, 7)]
        told = snapshot(*events, live=[(0x1400, 2000)])
        told["segments"][0].update(address=0x1000, total_size=4096)
        figures = self.figures(self.file("s.pickle", pickle.dumps(told)))
        replay, = figures["replays"]
        self.assertEqual({key: replay[key] for key in ("is_recorded", "peak_reserved_bytes", "peak_reserved_event", "live_then_bytes")},
                         {"is_recorded": True, "peak_reserved_bytes": 4608, "peak_reserved_event": 2, "live_then_bytes": 1000})
        self.assertEqual(replay["when_most_reserved"],
                         {"event": 2, "reserved": 4608, "live": 1000, "pending": 50, "cached": 3558, "rest": 0})
        self.assertEqual(replay["driver_calls"], {"segments taken": 1, "segments given back": 1})
        self.assertEqual(data_of(self.page)["replays"][0]["samples"]["reserved"], [512, 512, 4608, 4608, 4096])
        events = [event("alloc", 0x1000, 10, 1)]
        self.assertEqual(self.figures(self.file("s.pickle", pickle.dumps(snapshot(*events))))["replays"], [])

    def test_where_a_stack_has_no_python_the_caller_is_the_node_of_autograd_or_the_operator(self):
        inside = [("torch::unwind::unwind()", "??"), ("torch::CapturedTraceback::gather(bool)", "??"),
                  ("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)", ""),
                  ("at::detail::empty_cuda(c10::ArrayRef<long>)", "??"), ("at::(anonymous namespace)::create_out(int)", "RegisterCUDA.cpp"),
                  ("at::_ops::bmm::call(at::Tensor const&)", "??")]
        outside = [("torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)", "??"),
                   ("torch::autograd::Engine::evaluate_function(int)", "??")]
        stacks = inside + outside, inside, inside[:5], []
        events = [{**event("alloc", 0x1000 * (i + 1), i + 1, i), "frames": [{"name": name, "filename": file, "line": 0} for name, file in one]}
                  for i, one in enumerate(stacks)]
        figures = self.figures(self.file("s.pickle", pickle.dumps(snapshot(*events, live=[(0x9000, 50)]))))
        self.assertEqual({group["name"]: group["bytes"] for group in figures["memory"][0]["at_peak"]["caller"]},
                         {"torch::autograd::generated::BmmBackward0::apply": 1, "at::_ops::bmm::call": 2,
                          "at::(anonymous namespace)::create_out": 3, "unknown": 4, "allocated before the recording": 50})
        calls = data_of(self.page)["calls"]
        stack = next(frames for frames in calls["frames"] if len(frames) == 5)
        self.assertEqual([calls["texts"][full] for _, full, _ in stack],
                         ["torch::autograd::generated::BmmBackward0::apply", "RegisterCUDA.cpp:0 (at::(anonymous namespace)::create_out(int))",
                          "at::_ops::bmm::call(at::Tensor const&)", *(name for name, _ in outside)])

    def test_functions_of_cpp_leave_room_for_all_lines_of_python(self):
        frames = [{"name": "f()", "filename": "??", "line": 0}] * 70 + [{"name": "main", "filename": "/me/t.py", "line": 9}]
        figures = self.figures(self.file("s.pickle", pickle.dumps(snapshot({**event("alloc", 0x1000, 10, 1), "frames": frames}))))
        self.assertEqual([group["name"] for group in figures["memory"][0]["at_peak"]["caller"]], ["t.py:9 (main)"])


class Changes(Case):
    def test_what_changed_between_two_recordings_is_told_by_caller(self):
        def log(name, *rows):
            return self.file(name, LOG_HEADER + "".join(
                row("Alloc", 0x1000 * (i + 1), size, i, f"/l/{caller}.so+0x1 (f+0x1)") for i, (caller, size) in enumerate(rows)))

        before, now = log("before.csv", ("a", 100), ("b", 10)), log("now.csv", ("a", 100), ("b", 30), ("c", 5), ("b", 2))
        changes = self.figures(now, "--against", before)["changes"]
        self.assertEqual((changes["by"], changes["peak_live_bytes"], changes["left_bytes"]), ("caller", [110, 137], [110, 137]))
        self.assertEqual([(line["name"], line["peak_bytes"], line["allocations"]) for line in changes["rows"]],
                         [("f in b.so", [10, 32], [1, 2]), ("f in c.so", [0, 5], [0, 1]), ("f in a.so", [100, 100], [1, 1])])
        said = run("report", now, "--against", before, "-o", self.page).stdout
        self.assertIn("at most 137 B, was 110 B; most of it by f in b.so: 32 B, was 10 B\n", said)
        self.assertEqual(self.figures(TRACES / "infer_gpt.csv.gz", "--against", now)["changes"]["by"], "size")
        self.assertNotIn("changes", self.figures(now))
        for read in (now, before):
            self.assertIn("this is the file that is read; name another", self.refusal(now, "--against", before, "-o", read))

    def test_a_part_is_compared_with_the_same_part(self):
        def trace(name, *sizes):
            return self.file(name, HEADER + "".join(f"{2 * i},0,0,mark,{i},0\n{2 * i + 1},0,0,alloc,{i},{size}\n"
                                                    f"{2 * i + 1},0,0,free,{i},{size}\n" for i, size in enumerate(sizes)))

        before, now = trace("before.csv", 100, 10), trace("now.csv", 200, 30, 7)
        self.assertEqual(self.figures(now, "--step", 1, "--against", before)["changes"]["peak_live_bytes"], [10, 30])
        self.assertRegex(self.refusal(now, "--step", 2, "--against", before, "-o", self.page), "before.csv.*: expected a mark for --step 2")


class Replays(Case):
    def test_asking_a_plugin_for_its_figures_adds_no_driver_calls(self):
        path = self.file("log.csv", random_log(300, CALLERS))
        replay = self.figures(path, "--plugin", "async")["replays"][0]
        self.assertEqual(replay["driver_calls"], answer("replay", path, "--plugin", "async")["results"][0]["driver_calls"])

    def test_a_replay_has_the_reserve_and_the_calls_of_emm_replay(self):
        path = self.file("log.csv", random_log(3000, CALLERS))
        for source in (path, TRACES / "infer_gpt.csv.gz"):
            replay = self.figures(source, "--plugin", "pool")["replays"][0]
            other = answer("replay", source, "--plugin", "pool", EMM_SIM="memory=256GiB")["results"][0]
            self.assertEqual(replay["peak_within_calls_bytes"], other["peak_reserved_bytes"])
            self.assertLessEqual(replay["peak_reserved_bytes"], replay["peak_within_calls_bytes"])
            self.assertGreaterEqual(replay["peak_reserved_bytes"], figures_peak(source))
            self.assertEqual((replay["failed"], replay["leaked"]), (0, 0))
            self.assertGreater(replay["driver_calls"]["cuMemCreate"], 0)
            drawn = data_of(self.page)["replays"][0]
            self.assertEqual(max(drawn["reserved"]["high"]), replay["peak_reserved_bytes"])
            self.assertGreater(len(drawn["map"]["moments"]), 100)
            for parts in (replay["when_most_reserved"], replay["when_most_idle"]):
                self.assertEqual(parts["reserved"],
                                 parts["live"] + parts["cached"] + parts["pending"] + parts["rest"])

    def test_two_plugins_are_side_by_side_and_one_that_does_not_load_is_told(self):
        path = self.file("log.csv", random_log(500, CALLERS))
        figures = self.figures(path, "--compare", "pool", "passthrough")
        self.assertEqual([one["plugin"] for one in figures["replays"]], ["pool", "passthrough"])
        figures = self.figures(path, "--compare", "nothing-like-it", "pool", status=1)
        self.assertIn("nothing-like-it", figures["replays"][0]["error"]["message"])
        self.assertGreater(figures["replays"][1]["peak_reserved_bytes"], 0)
        self.assertIsNone(data_of(self.page)["replays"][0])

    def test_the_summary_says_that_a_replay_was_on_the_simulated_driver(self):
        path = self.file("log.csv", random_log(50, CALLERS))
        said = run("report", path, "-o", self.page, "--plugin", "passthrough").stdout
        self.assertIn("\n  passthrough on the SIMULATED driver: at most ", said)

    def test_without_a_plugin_that_loads_there_is_no_page(self):
        path = self.file("log.csv", random_log(50, CALLERS))
        done = run("report", path, "-o", self.page, "--plugin", "nothing-like-it")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nothing-like-it", done.stderr)
        self.assertFalse(self.page.exists())


class Manners(Case):
    def test_a_page_that_takes_the_place_of_another_file_says_so(self):
        path = self.file("log.csv", random_log(50, CALLERS))
        for end in "page.html: the page\n", "page.html: the page, in place of the file that was there\n":
            said = run("report", path, "-o", self.page).stdout
            self.assertTrue(said.endswith(end), said)

    def test_names_do_no_harm(self):
        callers = [f"/lib/{name}.so+0x1 ({name}+0x2)" for name in HOSTILE]
        path = self.file("<b>log.csv", random_log(400, [caller.replace("\n", " ") for caller in callers]))
        done = run("report", path, "-o", self.page)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(re.search("[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr))
        text = self.page.read_text(encoding="ascii")
        self.assertEqual((text.count("</script>"), text.count("<script")), (2, 2))
        self.assertNotIn("<img", text)
        labels = [groups for groups in data_of(self.page)["memory"][0]["groups"] if groups["name"] == "caller"]
        self.assertIn("<img src=x onerror=alert(1)> in <img src=x onerror=alert(1)>.so", labels[0]["labels"])
        self.assertTrue(all(len(label.encode()) <= 4096 for label in labels[0]["labels"]))

    def test_bad_input_gets_one_sentence_and_no_page(self):
        for text, expected in [("", "header"), ("a,b\n1,2\n", "header"), (HEADER, "at least one allocation"),
                               (LOG_HEADER, "at least one allocation"), (LOG_HEADER + "x\n", "line 2"),
                               (HEADER + "0,0,0,alloc,1,8\n0,0,0,alloc,1,8\n", "line 3"),
                               (HEADER + "0,0,0,free,1,8\n", "line 2"), (HEADER + "0,0,0,alloc,1,0\n", "line 2"),
                               (HEADER + "0,0,0,alloc,1,8\n0,0,0,free,1,9\n", "line 3"),
                               (HEADER + "9,0,0,alloc,1,8\n8,0,0,free,1,8\n", "line 3"),
                               (LOG_HEADER + row("Alloc", 4096, 8, 0, "y" * (1 << 20)), "line 2"),
                               (LOG_HEADER + row("Alloc", 4096, 1 << 63, 0, "y") * 2, "line 3")]:
            self.assertIn(expected, self.refusal(self.file("bad.csv", text), "-o", self.page))
        self.assertIn("No such file", self.refusal(self.folder / "none.csv", "-o", self.page))

    def test_wrong_use_is_said(self):
        two = self.file("two.csv", LOG_HEADER + row("Alloc", 4096, 8, 0, "a") + row("Alloc", 8192, 8, 0, "a", device=1))
        self.assertIn("and the recording has 2", self.refusal(two, "-o", self.page, "--plugin", "pool"))
        self.assertIn("-o FILE", answer("report", two, "-o", "-", status=2)["error"]["message"])
        self.assertEqual(run("report", two, "--plugin", "pool", "--compare", "pool", "async").returncode, 2)
        self.assertEqual(run("report", two, "--compare", "pool").returncode, 2)
        self.assertEqual(run("report").returncode, 2)

    def test_a_page_that_cannot_be_written_is_said_and_what_was_there_stays(self):
        path = self.file("log.csv", random_log(50, CALLERS))
        self.assertIn("cannot write", self.refusal(path, "-o", "/dev/full", status=1))
        self.assertIn("cannot write", self.refusal(path, "-o", self.folder / "none" / "page.html", status=1))
        self.page.write_text("before")
        done = subprocess.run(["prlimit", "--fsize=10000", EMM, "report", path, "-o", self.page],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write", done.stderr)
        self.assertEqual(self.page.read_text(), "before")
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([EMM, "report", path, "-o", self.page], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
