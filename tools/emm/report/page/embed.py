#!/usr/bin/env python3
"""embed.py OUTPUT page.html page.css FILE.js...: the page in one piece, as a C++ source file.

The policy in the page names the hash of its script and of its style sheet, so that a browser runs and
applies nothing else.
"""
import base64
import hashlib
import sys

A_LINE = 32


def policy_hash(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def page_of(html, style, script):
    for mark in ("@STYLE@", "@SCRIPT@", "@STYLE_HASH@", "@SCRIPT_HASH@", "@DATA@"):
        if html.count(mark) != 1:
            raise SystemExit(f"page.html: expected {mark} once, found it {html.count(mark)} times")
    if "</" in script or "<!--" in script:
        raise SystemExit("the script has '</' or '<!--', which would end its element")
    html = html.replace("@STYLE_HASH@", policy_hash(style)).replace("@SCRIPT_HASH@", policy_hash(script))
    return html.replace("@STYLE@", style).replace("@SCRIPT@", script)


def function(name, text):
    numbers = [str(byte) for byte in text.encode("ascii")]
    lines = ",\n".join(",".join(numbers[i:i + A_LINE]) for i in range(0, len(numbers), A_LINE))
    return (f"std::string_view {name}() {{\n    static const char text[] = {{{lines}}};\n"
            "    return {text, sizeof text};\n}\n")


def main():
    output, html, style, *scripts = sys.argv[1:]

    def read(name):
        with open(name, encoding="ascii") as file:
            return file.read()

    script = '"use strict";\n' + "".join(read(name) for name in scripts)
    before, behind = page_of(read(html), read(style), script).split("@DATA@")
    with open(output, "w", encoding="ascii") as file:
        file.write('#include "report/page.h"\n\nnamespace emm::tool {\n\n'
                   + function("page_before_data", before) + "\n" + function("page_behind_data", behind)
                   + "\n} // namespace emm::tool\n")


if __name__ == "__main__":
    main()
