#!/usr/bin/env python3
"""The blocks of a page of `emm report`, one by one: what its functions find, and what a reader finds with clicks."""
import pathlib

from report_pages import PageCase, main
from report_sample import LOG_HEADER, row

NATIVE = "/usr/lib/_ctypes.so+0x12 (call+0x3)"
TRACES = pathlib.Path(__file__).resolve().parent.parent / "traces"


def stack(line, function):
    return "\t".join([NATIVE, "/me/train.py:7 (alloc)", f"/me/train.py:{line} ({function})", "/me/train.py:90 (<module>)"])


# Three callers: one keeps its blocks, one frees on another stream, one frees all.
KEEPS, MOVES, FREES = stack(20, "cache"), stack(30, "loader"), stack(40, "forward")
LOG = LOG_HEADER + "".join([
    row("Alloc", 0x10000, 100, 0.0, KEEPS), row("Alloc", 0x20000, 1000, 1.0, MOVES, stream="5"),
    row("Alloc", 0x30000, 5000, 2.0, FREES), row("Free", 0x30000, 5000, 3.0, FREES),
    row("Alloc", 0x30000, 700, 4.0, KEEPS), row("Free", 0x20000, 1000, 5.0, MOVES, stream="6"),
    row("Alloc Failure", 0, 1 << 20, 5.5, FREES), row("Alloc", 0x20000, 2000, 8.0, FREES)])
EVENT = "page.view.event"
ROWS = "[...document.querySelectorAll('#{} tbody tr')].map((line) => [...line.children].map((cell) => cell.textContent))"


class Functions(PageCase):
    def setUp(self):
        super().setUp()
        self.show(self.file("log.csv", LOG))
        self.value("window.t = page.view.table, window.all = new Uint8Array(t.count).fill(1), null")

    def test_moments_are_those_of_the_recording(self):
        self.assertEqual(self.value("[0, 0.5e9, 3e9, 7.9e9, 9e9].map((time) => t.eventAt(time))"), [0, 0, 3, 5, 6])
        self.assertEqual(self.value("[...t.liveAt(3, all)]"), [0, 1])
        self.assertEqual(self.value("[...t.liveAt(6, all)]"), [0, 3, 4])
        self.assertEqual(self.value("peakOf(t, all)"), {"bytes": 6100, "event": 2})

    def test_texts_are_read_as_sizes(self):
        self.assertEqual(self.value("['4 MiB', '1.5g', '100', '2kb', ' 7 B '].map(sizeIn)"), [4 << 20, 3 << 29, 100, 2048, 7])
        self.assertEqual(self.value("['', 'x', '-1', '1 q', '1e9'].map(sizeIn).every(Number.isNaN)"), True)

    def test_a_filter_has_the_blocks_that_fit_all_of_it(self):
        for filter, blocks in (({}, [0, 1, 2, 3, 4]), ({"text": "cache"}, [0, 3]), ({"text": "TRAIN.PY:40"}, [2, 4]),
                               ({"text": "0x30001"}, [2, 3]), ({"text": "0x30fff"}, [2]), ({"text": "0x1"}, []),
                               ({"stream": "5"}, [1]), ({"least": 700, "most": 1000}, [1, 3]),
                               ({"which": "never freed"}, [0, 3, 4]), ({"which": "freed on another stream"}, [1]),
                               ({"text": "cache", "least": 101}, [3])):
            self.assertEqual(self.value(f"blocksOf(t, maskOf(t, {{...noFilter, ...{filter!r}}}))"), blocks, filter)

    def test_a_level_has_single_events_and_adds_up(self):
        level = self.value("levelOf(t, groupsBy(t, all, questionOf(t, 'caller'), ['train.py:20 (cache)', 'others']), 2, 2, 6, 100)")
        self.assertEqual(level["first_event"], [2, 3, 4, 5, 6])
        self.assertEqual(level["end"], [6100, 1100, 1800, 800, 2800])
        self.assertEqual(level["stacks"]["end"], [[100, 6000], [100, 1000], [800, 1000], [800, 0], [800, 2000]])
        coarse = self.value("levelOf(t, new Uint8Array(t.count), 1, 0, 6, 1)")
        self.assertEqual((coarse["first_event"], coarse["low"], coarse["high"], coarse["end"], coarse["high_event"]),
                         ([0], [100], [6100], [2800], [2]))

    def test_the_page_counts_parts_as_the_tool_counts_the_whole(self):
        self.show(TRACES / "train_gpt.csv.gz")
        self.assertTrue(self.value("(() => { const view = page.view, table = view.table, whole = view.memory.buckets;"
                                   "const level = levelOf(table, view.groupOf, view.labels.length, 0, table.events - 1, 2048);"
                                   "const stacks = groupsOf(view.memory, view.group);"
                                   "return ['first_event', 'last_time', 'low', 'high', 'end', 'high_event'].every((key) =>"
                                   " String(level[key]) === String(whole[key])) && String(level.stacks.high) === String(stacks.high); })()"))

    def test_a_block_lies_where_the_stack_has_it(self):
        groups = "groupsBy(t, all, questionOf(t, 'caller'), ['train.py:20 (cache)', 'others'])"
        found = self.value(f"[0, 99, 100, 799, 800, 2799, 2800].map((height) => blockAtHeight(t, {groups}, 2, 6, height))")
        self.assertEqual(found, [0, 0, 3, 3, 4, 4, -1])

    def test_a_flame_graph_adds_up_and_merges_what_is_too_much(self):
        root = self.value("flameOf(t, [0, 1, 2, 3, 4], pathBy(t, ['calls', 'size']))")
        self.assertEqual((root["bytes"], root["blocks"]), (8800, 5))
        module, = root["children"]
        self.assertEqual([(node["name"], node["bytes"]) for node in module["children"]],
                         [("train.py:40 (forward)", 7000), ("train.py:30 (loader)", 1000), ("train.py:20 (cache)", 800)])
        self.assertEqual(module["children"][0]["children"][0]["name"], "train.py:7 (alloc)")
        many = self.value("flameOf({ size: [...Array(100).keys()].map((i) => i + 1) }, [...Array(100).keys()], (i) => [String(i)])")
        self.assertEqual((len(many["children"]), many["children"][-1]["name"], many["bytes"]), (24, "77 others", 5050))
        self.assertEqual(sum(node["bytes"] for node in many["children"]), 5050)

    def test_what_was_never_freed_has_its_callers_and_times(self):
        rows = self.value("unfreedBy(t, all, 8)")
        self.assertEqual([(row["name"], row["bytes"], row["from"], row["to"]) for row in rows],
                         [("train.py:40 (forward)", 2000, 8e9, 8e9), ("train.py:20 (cache)", 800, 0, 4e9)])
        self.assertEqual(rows[1]["times"], [100, 0, 0, 0, 700, 0, 0, 0])

    def test_streams_are_told_with_the_most_that_they_had(self):
        rows = self.value("streamsAt(t, all, 2)")
        self.assertEqual([(row["name"], row["now"], row["most"], row["at"], row["elsewhere"]) for row in rows],
                         [("0", 5100, 5100, 2, 0), ("5", 1000, 1000, 1, 1)])

    def test_a_name_has_one_colour_in_all_lists(self):
        self.assertTrue(self.value("colorsOf(['a', 'b'])[1] === colorsOf(['b'])[0] && colorsOf(['a', 'b'])[0] !== colorsOf(['b'])[0]"))
        self.assertEqual(self.value("new Set(colorsOf([...'abcdefghi'])).size"), 9)
        # Letters that are 17 apart have the same hash here.
        both = self.value("knownColors.clear(), colorsOf(['A', 'R'])")
        self.assertEqual(self.value("[...colorsOf(['A']), ...colorsOf(['R'])]"), both)
        self.assertNotEqual(both[0], both[1])
        self.assertEqual(self.value("knownColors.clear(), colorsOf(['R'])[0]"), both[0])

    def test_what_is_reserved_is_not_drawn_beside_what_a_filter_has(self):
        self.show(TRACES / "infer_gpt.csv.gz", "--plugin", "pool")
        tip = "document.querySelector('.tip').textContent"
        left, top, width, _ = self.box("canvas")
        self.browser.mouse("mouseMoved", left + width / 2, top + 150)
        self.assertIn("reserved: ", self.value(tip))
        self.value("page.view.select({ least: 1 << 20 })")
        self.browser.mouse("mouseMoved", left + width / 2 + 1, top + 150)
        self.assertNotIn("reserved: ", self.value(tip))

    def test_a_table_of_the_largest_blocks_has_events_of_others_too(self):
        self.value("window.few = new Table({ count: 2, left_off: 1, least_size: 5, events: 6, begin: 0, first_address: null, streams: ['0'],"
                   "columns: { event: 'AQ==', events: 'AwA=', begin: 'Cg==', lived: 'HgA=', size: 'BQY=', address: 'AA==', site: 'AA==',"
                   "stream: 'AA==', thread: 'AA==', freed_on: 'AA==', pool: 'AA==', dropped: 'AA==' } }, t.calls), null")
        self.assertEqual(self.value("[0, 1, 2, 3, 4, 5].map((event) => few.timeOf(event))"), [0, 10, 20, 20, 40, 40])
        self.assertEqual(self.value("[0, 25, 99].map((time) => few.eventAt(time))"), [0, 3, 5])
        self.assertEqual(self.value("levelOf(few, new Uint8Array(2), 1, 0, 5, 99).end"), [0, 5, 11, 11, 6, 6])
        self.assertEqual(self.value("eventText(few, 3)"), "of a block that is not listed")
        self.assertIn("1 blocks of less than 5 B are not listed", self.value(
            "foundText({ table: few, filter: noFilter })"))

    def test_lines_further_out_are_answers_too(self):
        self.assertEqual(self.value("[0, 1, 2, 9].map((depth) => questionOf(t, 'line ' + depth)(0))"),
                         ["train.py:7 (alloc)", "train.py:20 (cache)", "train.py:90 (<module>)", "train.py:90 (<module>)"])


class Reader(PageCase):
    def setUp(self):
        super().setUp()
        self.show(self.file("log.csv", LOG))

    def press(self, text):
        self.value(f"[...document.querySelectorAll('button')].find((button) => button.textContent === {text!r}).click()")

    def fill(self, box, text):
        self.value(f"(() => {{ const box = document.getElementById({box!r}); box.value = {text!r};"
                   "box.dispatchEvent(new Event('change')); })()")

    def rows(self, box):
        return self.value(ROWS.format(box))

    def test_the_line_that_made_the_peak_is_told_at_once(self):
        said = self.value("document.querySelector('main').textContent")
        self.assertIn("The peak, event 2: 6.0 KiB in 3 blocks; 82 % by train.py:40 (forward)", said)

    def test_three_quarters_of_the_time_is_one_click(self):
        self.press("3/4")
        self.assertEqual(self.value(EVENT), 5)
        self.assertEqual([row[1] for row in self.rows("blocks")], ["train.py:20 (cache)"] * 2)
        self.assertIn("event 5, 800 B live in 2 blocks", self.value("document.querySelector('.now').textContent"))
        self.assertEqual(self.value("document.querySelector('.node').getAttribute('aria-label')"), "live at the moment, 800 B")

    def test_what_was_never_freed_stands_by_caller(self):
        self.assertEqual([row[:4] for row in self.rows("unfreed")],
                         [["train.py:40 (forward)", "2.0 KiB", "", "1"], ["train.py:20 (cache)", "800 B", "", "2"]])
        self.press("bytes and how long they are held")
        self.assertEqual([row[0] for row in self.rows("unfreed")], ["train.py:20 (cache)", "train.py:40 (forward)"])
        self.value("document.querySelectorAll('#unfreed tbody tr')[0].click()")
        self.assertEqual(self.value("page.view.filter.which"), "never freed")
        self.assertIn("The filter has 2 of 5 blocks", self.value("document.getElementById('found').textContent"))

    def test_a_block_tells_its_stack_size_stream_and_life(self):
        self.press("of all the time")
        self.value("[...document.querySelectorAll('#blocks tbody tr')].find((line) =>"
                   " line.textContent.includes('loader')).click()")
        said = self.value("document.getElementById('block').textContent")
        for part in ("1000 B by train.py:30 (loader)", "1,000 bytes", "0x20000", "5, freed on 6", "1.000000 s, event 1",
                     "5.000000 s, event 5", "4 s", "/me/train.py:7 (alloc)", "/me/train.py:90 (<module>)"):
            self.assertIn(part, said)
        self.press("to its end")
        self.assertEqual(self.value(EVENT), 5)

    def test_an_address_finds_its_blocks(self):
        self.fill("find", "0x30010")
        self.press("of all the time")
        self.assertEqual([row[:3] for row in self.rows("blocks")],
                         [["4.9 KiB", "train.py:40 (forward)", "0x30000"], ["700 B", "train.py:20 (cache)", "0x30000"]])
        self.press("clear")
        self.assertEqual(self.value("document.getElementById('find').value"), "")

    def test_a_click_on_the_chart_chooses_the_block_under_it(self):
        left, top, width, _ = self.box("canvas")
        x = left + self.value("document.querySelector('canvas') && (66 + (2.5e9 - page.view.from) / (page.view.to - page.view.from) *"
                              f" ({width} - 76))")
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.mouse(kind, x, top + 260, button="left", clickCount=1)
        self.assertEqual(self.value(EVENT), 2)
        self.assertIn("by train.py:40 (forward)", self.value("document.querySelector('#block h3').textContent"))

    def test_zooming_in_shows_single_events(self):
        self.press("events")
        self.value("page.view.show(2, 6)")
        self.assertEqual(self.value("[page.view.level.first_event.slice(2), page.view.to - page.view.from]"), [[2, 3, 4, 5, 6], 4])
        left, top, width, _ = self.box("canvas")
        self.browser.mouse("mouseMoved", left + 66 + 0.3 * (width - 76), top + 150)
        self.assertIn("event 3: 4.9 KiB freed, allocated by train.py:40 (forward)",
                      self.value("document.querySelector('.tip').textContent"))

    def test_single_blocks_are_seen_where_there_are_few(self):
        self.assertEqual(self.value("[...page.view.fewBlocks]"), [2, 4, 1, 0, 3]) # by group, the largest first
        few = self.colors("canvas")
        self.value("page.view.select({ text: 'cache' })")
        self.assertEqual(self.value("[...page.view.fewBlocks]"), [0, 3])
        self.assertLess(self.colors("canvas"), few)
        self.show(TRACES / "infer_gpt.csv.gz")
        self.assertEqual(self.value("page.view.fewBlocks"), [])

    def test_streams_and_failures_are_listed_and_lead_to_their_moment(self):
        self.assertEqual([row[0] for row in self.rows("streams")], ["0", "5"])
        failed, = self.rows("failed")
        self.assertEqual(failed, ["Alloc Failure", "1.0 MiB", "600 B", "800 B", "5.500000 s", "train.py:40 (forward)"])
        self.value("document.querySelector('#failed tbody tr').click()")
        self.assertEqual(self.value(EVENT), 5)

    def test_what_changed_since_another_run_is_listed(self):
        before = self.file("before.csv", LOG.replace(",2000,", ",1500,"))
        self.show(self.file("log.csv", LOG), "--against", before)
        row = self.rows("changes")[0]
        self.assertEqual(row[:7], ["train.py:40 (forward)", "4.9 KiB", "4.9 KiB", "same", "2.0 KiB", "1.5 KiB", "+500 B"])

    def test_a_part_tells_what_happens_behind_it(self):
        self.show(self.file("log.csv", LOG), "--from", 1.5, "--to", 3.5)
        self.assertIn("This is a part of it, from 1.500 s to 3.500 s", self.value("document.getElementById('source').textContent"))
        self.press("of all the time")
        self.value("[...document.querySelectorAll('#blocks tbody tr')].find((line) => line.textContent.includes('loader')).click()")
        self.assertIn("5.000000 s, behind this part", self.value("document.getElementById('block').textContent"))
        self.assertEqual([row[0] for row in self.rows("unfreed")], ["train.py:20 (cache)"])

    def test_a_trace_tells_what_it_knows_of_its_blocks(self):
        self.show(TRACES / "infer_gpt.csv.gz")
        heads = "[...document.querySelectorAll('#{} thead th')].map((cell) => cell.textContent)"
        self.assertEqual(self.value(heads.format("blocks")), ["size", "stream", "allocated at", "lived"])
        self.assertEqual(self.value(heads.format("unfreed"))[0], "size")
        self.value("document.querySelector('#blocks tbody tr').click()")
        self.assertIn("The recording does not tell who asked.", self.value("document.getElementById('block').textContent"))

    def test_a_million_events_open_in_three_seconds(self):
        size = [512 + i % 4093 for i in range(500500)]
        rows = [f"{i},0,{i % 3},alloc,{i},{size[i]}\n" + (f"{i},0,0,free,{i - 500},{size[i - 500]}\n" if i >= 500 else "")
                for i in range(500500)]
        self.show(self.file("trace.csv", "time,thread,stream,op,id,size\n" + "".join(rows)))
        self.assertEqual(self.value("page.view.table.events"), 1000500)
        self.assertLess(self.value("performance.getEntriesByType('navigation')[0].loadEventEnd"), 3000)

    def test_the_reader_chooses_the_line_that_colours(self):
        self.fill("line", "line 0")
        self.assertEqual(self.value("page.view.labels"), ["train.py:7 (alloc)"])
        self.fill("line", "")
        self.assertEqual(len(self.value("page.view.labels")), 3)


if __name__ == "__main__":
    main()
