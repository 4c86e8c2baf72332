"""A test case with a page of `emm report` in headless Chromium."""
import pathlib
import sys
import tempfile
import unittest

import browser
from emm_program import answer


def value_of(selector):
    return f"Number(document.querySelector({selector!r}).dataset.value)"


class PageCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser()
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def setUp(self):
        self.browser.faults.clear()

    def tearDown(self):
        self.assertEqual(self.browser.faults, [])

    def value(self, expression):
        return self.browser.value(expression)

    def file(self, name, text):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text, encoding="utf-8")
        return path

    def show(self, recording, *words, status=0):
        page = pathlib.Path(self.folder.name, "page.html")
        figures = answer("report", recording, *words, "-o", page, status=status)
        self.browser.open(page)
        return figures

    def box(self, selector):
        self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        return self.value(f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
                          "return [b.left, b.top, b.width, b.height]; })()")

    def colors(self, selector):
        """How many colours the canvas has."""
        return self.value(f"(() => {{ const c = document.querySelector({selector!r});"
                          "const o = new OffscreenCanvas(c.width, c.height), p = o.getContext('2d', {willReadFrequently: true});"
                          "p.drawImage(c, 0, 0); const d = p.getImageData(0, 0, c.width, c.height).data;"
                          "const s = new Set(); for (let i = 0; i < d.length; i += 4)"
                          " { if (d[i + 3] > 250) { s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); } } return s.size; })()")


def main():
    if not browser.program():
        print("skipped: no Chromium, under any of the names " + ", ".join(browser.NAMES))
        sys.exit(77)
    unittest.main(verbosity=2)
