#!/usr/bin/env python3
"""The page of `emm report` in headless Chromium: no error, the recording's figures, and what a reader does with it."""
import pathlib
import re

from report_pages import PageCase, main, value_of
from report_sample import HOSTILE, LOG_HEADER, counted, dropping_log, random_log, row

TRACES = pathlib.Path(__file__).resolve().parent.parent / "traces"
CALLERS = ["/usr/lib/liba.so+0x12 (work(int)+0x3)", "/usr/lib/libb.so+0x99", "/usr/lib/libb.so+0x12 (other+0x3)"]
SHOWN = ("peak_live_bytes", "left_bytes", "allocations")


class Page(PageCase):
    def test_the_page_shows_the_figures_of_the_recording(self):
        log = self.file("log.csv", random_log(5000, CALLERS))
        for recording in (TRACES / "train_gpt.csv.gz", log):
            self.show(recording)
            expected, _, lifetimes = counted(recording)
            for key in SHOWN:
                self.assertEqual(self.value(value_of("#" + key)), expected[key], key)
            shown = self.value("[...document.querySelectorAll('#lifetimes .value')].map((v) => Number(v.dataset.value))")
            self.assertEqual(sum(shown), expected["allocations"])
            self.assertEqual(sum(shown[:-1]) if expected["left_blocks"] else sum(shown), len(lifetimes))
            self.assertGreater(self.colors("canvas"), 4)

    def test_the_flame_graph_asks_by_tag_where_the_program_has_tags(self):
        rows = [row("Alloc", 0x1000 * (i + 1), 100 << i, i, CALLERS[0] + tag) for i, tag in enumerate(("", "\ttag serve/decode"))]
        press = "[...document.querySelectorAll('.choices button')].find((b) => b.textContent === 'tag > caller > size')"
        self.show(self.file("plain.csv", LOG_HEADER + rows[0]))
        self.assertTrue(self.value(f"{press} === undefined"))
        self.show(self.file("log.csv", LOG_HEADER + "".join(rows)))
        self.value(f"{press}.click()")
        shown = self.value("document.querySelector('.flame').textContent")
        for words in ("serve/decode", "no tag", "work(int) in liba.so"):
            self.assertIn(words, shown)

    def test_what_a_replay_reserves_is_shown(self):
        figures = self.show(TRACES / "infer_gpt.csv.gz", "--plugin", "pool")
        replay = figures["replays"][0]
        self.assertIn(replay["peak_reserved_bytes"],
                      self.value("[...document.querySelectorAll('.tile strong')].map((v) => Number(v.dataset.value))"))
        calls = self.value("Object.fromEntries([...document.querySelectorAll('#driver_calls tbody tr')].map((r) =>"
                           "[r.children[0].textContent, Number(r.children[1].dataset.value)]))")
        self.assertEqual(calls, replay["driver_calls"])

    def test_the_page_says_why_the_plugin_took_more_when_it_had_the_most(self):
        mib = 1 << 20
        split = [("a", 24, 0), ("b", 4, 0), ("c", 24, 0), ("d", 4, 0), ("a", 0, 0), ("c", 0, 0)]
        for segment, events, sentences in (
                ("8MiB", [("a", 8, 0), ("b", 16, 0)], ["0 B were not live, which is less than that"]),
                ("64MiB", [*split, ("e", 40, 0)],
                 ["no gap between the live blocks was larger than 24.0 MiB",
                  "48.0 MiB had been freed last on the request's own stream (the largest piece 24.0 MiB)",
                  "No piece of one of them was large enough"]),
                ("64MiB", [*split, ("e", 40, 1)],
                 ["48.0 MiB on other streams, whose work it would have to wait for (the largest piece 24.0 MiB)"])):
            sizes = {name: size * mib for name, size, _ in events if size}
            trace = "time,thread,stream,op,id,size\n" + "".join(
                f"{i},0,{stream},{'alloc' if size else 'free'},{ord(name)},{sizes[name]}\n"
                for i, (name, size, stream) in enumerate(events))
            figures = self.show(self.file("trace.csv", trace), "--plugin",
                                f"pool:growth=segment,segment={segment}")
            growth = figures["replays"][0]["growth"]
            self.assertEqual(growth["asked"], events[-1][1] * mib)
            shown = self.value("document.querySelector('.growth').textContent")
            for said in sentences:
                self.assertIn(said, shown)

    def test_two_plugins_stand_side_by_side(self):
        figures = self.show(TRACES / "infer_gpt.csv.gz", "--compare", "pool", "async")
        shown = self.value("[...document.querySelectorAll('#comparison tbody tr:first-child td')]"
                           ".map((v) => Number(v.dataset.value))")
        self.assertEqual(shown, [one["peak_reserved_bytes"] for one in figures["replays"]])
        rows = self.value("Object.fromEntries([...document.querySelectorAll('#comparison tbody tr')].map((row) =>"
                          "[row.children[0].textContent, row.children[1].textContent]))")
        pool, live = figures["replays"][0], figures["memory"][0]["peak_live_bytes"]
        self.assertEqual(rows["most reserved after a call, divided by the most live"],
                         f"{pool['peak_reserved_bytes'] / live:.3f}")
        tops = self.value("[...document.querySelectorAll('canvas[tabindex]')].map((c) => c.getBoundingClientRect().top)")
        self.assertEqual(len(tops), 2)
        self.assertEqual(tops[0], tops[1])

    def test_a_plugin_that_does_not_load_is_told_beside_the_others(self):
        self.show(self.file("log.csv", random_log(500, CALLERS)), "--compare", "nothing-like-it", "pool", status=1)
        self.assertIn("nothing-like-it", self.value("document.querySelector('.failure').textContent"))
        self.assertGreater(self.value("document.querySelectorAll('#driver_calls tbody tr').length"), 3)

    def test_the_pointer_is_told_what_is_under_it(self):
        figures = self.show(self.file("log.csv", random_log(5000, CALLERS)))
        left, top, width, _ = self.box("canvas")
        self.browser.mouse("mouseMoved", left + width / 2, top + 150)
        self.assertIn("live: ", self.value("document.querySelector('.tip').textContent"))
        left, top, width, _ = self.box(".node")
        self.browser.mouse("mouseMoved", left + width / 2, top + 10)
        peak = f"{figures['memory'][0]['peak_live_bytes']:,} bytes"
        self.assertIn(peak, self.value("document.querySelector('.tip').textContent"))

    def test_dragging_shows_a_part_and_a_button_all_of_it(self):
        self.show(TRACES / "train_gpt.csv.gz")
        whole = self.value("[page.view.from, page.view.to]")
        left, top, width, _ = self.box("canvas")
        self.browser.drag(left + width * 0.4, left + width * 0.6, top + 150)
        part = self.value("[page.view.from, page.view.to]")
        self.assertLess(part[1] - part[0], 0.3 * (whole[1] - whole[0]))
        self.value("document.querySelector('[aria-label=\"show all\"]').click()")
        self.assertEqual(self.value("[page.view.from, page.view.to]"), whole)
        self.value("[...document.querySelectorAll('button')].find((b) => b.textContent === 'events').click()")
        self.assertGreater(self.value("page.view.to"), 33000)
        self.assertLess(self.value("page.view.to"), 34000)

    def test_the_slider_reaches_the_first_the_last_and_the_fullest_moment(self):
        figures = self.show(self.file("log.csv", random_log(5000, CALLERS)))
        event = "Number(document.querySelector('output').dataset.event)"
        self.assertEqual(self.value(event), figures["memory"][0]["peak_event"])
        move = "(() => {{ const s = document.getElementById('moment'); s.value = {}; s.dispatchEvent(new Event('input')); }})()"
        self.value(move.format(0))
        self.assertEqual(self.value(event), 0)
        few = self.colors("figure:has(figcaption) canvas")
        self.value(move.format("s.max"))
        self.assertEqual(self.value(event), 4999)
        self.assertGreater(self.colors("figure:has(figcaption) canvas"), few)

    def test_a_block_of_the_flame_graph_opens(self):
        self.show(self.file("log.csv", random_log(5000, CALLERS)))
        before = self.value("document.querySelectorAll('.node').length")
        self.value("document.querySelectorAll('.node')[1].click()")
        self.assertIn("lib", self.value("document.querySelector('.path').textContent"))
        self.assertNotEqual(self.value("document.querySelectorAll('.node').length"), before)

    def test_lines_of_python_are_told_from_the_outermost_on(self):
        inside = "/venv/lib/python3.12/site-packages/numba/api.py:5 (device_array)"
        compiled = "/usr/lib/_ctypes.so+0x12 (call+0x3)"
        callers = ["\t".join([compiled, inside, f"/home/me/train.py:{line} (step)", "/home/me/train.py:90 (<module>)"])
                   for line in (10, 20)] + [compiled]
        self.show(self.file("log.csv", random_log(3000, callers)))
        names = self.value("[...document.querySelectorAll('.node')].map((node) => node.getAttribute('aria-label'))")
        for part in ("train.py:90 (<module>), ", "train.py:10 (step), ", "api.py:5 (device_array), ", "call in _ctypes.so, "):
            self.assertTrue(any(name.startswith(part) for name in names), (part, names))
        said = self.value("document.querySelector('main').textContent")
        self.assertIn("by train.py:20 (step)", said)
        ground = "(part) => getComputedStyle([...document.querySelectorAll('.node')].find((node) =>" \
                 " node.getAttribute('aria-label').startsWith(part))).backgroundColor"
        self.assertNotEqual(self.value(f"({ground})('train.py:10')"), self.value(f"({ground})('train.py:20')"))
        self.assertNotEqual(self.value(f"({ground})('train.py:10')"), self.value(f"({ground})('train.py:90')"))

    def test_calls_that_are_too_many_to_draw_are_one_block_without_a_size(self):
        self.show(self.file("log.csv", random_log(2000, [f"/lib/a.so+0x1\tt{i}.py:1 (f)" for i in range(60)])))
        names = self.value("[...document.querySelectorAll('.node')].map((node) => node.getAttribute('aria-label'))")
        self.assertEqual([re.sub(r"^[0-9]+", "N", name).split(", ")[0] for name in names if "others" in name], ["N others"])

    def test_what_was_dropped_is_told_from_what_was_freed(self):
        self.show(self.file("log.csv", dropping_log()))
        allocations = "document.querySelector('#allocations').parentElement.textContent"
        self.assertIn("2 frees, 9 dropped by a reset, 8 dropped with their context", self.value(allocations))
        names = self.value("[...document.querySelectorAll('#lifetimes .name')].map((name) => name.textContent)")
        self.assertEqual(names[-2:], ["never freed", "dropped, not freed"])
        self.assertEqual(self.value("document.querySelector('#lifetimes .value:last-child').dataset.value"), "17")

    def test_failures_behind_the_last_allocation_are_on_the_axis_of_time(self):
        self.show(self.file("log.csv", LOG_HEADER + row("Alloc", 4096, 10, 0.1, "a") + row("Free", 4096, 10, 0.2, "a") +
                            row("Alloc Failure", 0, 99, 5, "a")))
        self.assertGreater(self.value("page.view.to"), 5e9)
        left, top, width, _ = self.box("canvas")
        self.browser.mouse("mouseMoved", left + width - 30, top + 150)
        self.assertIn("live: 0 B", self.value("document.querySelector('.tip').textContent"))

    def test_the_last_of_three_plugins_takes_the_rest_of_its_row(self):
        self.show(TRACES / "infer_gpt.csv.gz", "--compare", "pool", "async", "passthrough")
        edges = self.value("[...document.querySelectorAll('.grid')].map((grid) => [grid, grid.lastElementChild]"
                           ".map((box) => Math.round(box.getBoundingClientRect().right)))")
        self.assertEqual([grid for grid, _ in edges], [last for _, last in edges])
        said = self.value("[...document.querySelectorAll('.growth')].map((one) => one.textContent)")
        self.assertTrue(said[2].startswith("The plugin keeps nothing for later requests: "), said[2])
        self.assertFalse(any("keeps nothing" in one for one in said[:2]), said)
        self.assertNotIn("(0 %)", self.value("document.querySelector('main').textContent"))

    def test_options_in_a_text_are_not_broken_at_their_hyphens(self):
        self.show(self.file("log.csv", random_log(500, CALLERS)))
        self.assertEqual(self.value("document.querySelector('.option').getClientRects().length"), 1)
        self.assertIn("--plugin", self.value("[...document.querySelectorAll('.option')].map((one) => one.textContent)"))

    def test_every_kind_of_memory_can_be_chosen(self):
        self.show(self.file("log.csv", LOG_HEADER + row("Alloc", 4096, 10, 0.1, "a") +
                            row("Alloc Host", 4096, 7, 0.2, "a") + row("Alloc Failure", 0, 99, 0.3, CALLERS[0])))
        self.assertEqual(self.value(value_of("#peak_live_bytes")), 10)
        self.assertEqual(self.value(value_of("#failures")), 1)
        self.value("document.querySelectorAll('#subjects button')[1].click()")
        self.assertEqual(self.value(value_of("#peak_live_bytes")), 7)

    def test_hostile_names_are_text(self):
        callers = [f"/lib/{name}.so+0x1 ({name}+0x2)".replace("\n", " ") for name in HOSTILE]
        callers += [f"/lib/a.so+0x1\t/home/{name}.py:7 ({name})\t{name}" for name in HOSTILE]
        self.show(self.file("<img src=x>.csv", random_log(2000, callers)))
        self.assertEqual(self.value("document.querySelectorAll('img, main script, iframe').length"), 0)
        self.assertIn("<img src=x>.csv", self.value("document.title"))
        self.assertIn("<img src=x onerror=alert(1)>", self.value("document.querySelector('main').textContent"))

    def test_nothing_is_wider_than_the_screen(self):
        self.show(self.file("log.csv", random_log(500, CALLERS)), "--compare", "pool", "async")
        for width in (400, 1280):
            for dark in (False, True):
                self.browser.open(pathlib.Path(self.folder.name, "page.html"), width=width, dark=dark)
                self.assertEqual(self.value("document.documentElement.scrollWidth"), width)
                self.assertLess(self.value("document.querySelector('#comparison td:last-child').getBoundingClientRect().right"), width)
                dark_paper = self.value("getComputedStyle(document.body).backgroundColor")
                self.assertEqual(dark_paper, "rgb(21, 23, 27)" if dark else "rgb(251, 251, 250)")


if __name__ == "__main__":
    main()
