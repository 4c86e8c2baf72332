#!/usr/bin/env python3
"""variables.py README VERSION: the manual page emm(7), of the section Environment of README.md."""
import re
import sys

ROW = re.compile(r"^\| `(\w+)` \| (.*) \| (?:(.*) )?\|$", re.M)


def roff(markdown):
    """Without links, which lead to files that are not installed."""
    text = re.sub(r" \(\[[^]]*\]\([^)]*\)\)", "", markdown)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def entry(name, meaning, unset):
    return f".TP\n\\fB{name}\\fR\n{roff(meaning)}.\n" + (f"If unset: {roff(unset)}.\n" if unset else "")


def main(readme, version):
    with open(readme, encoding="utf-8") as file:
        section = file.read().split("\n## Environment\n")[1].split("\nLicence:")[0]
    rows = ROW.findall(section)
    paragraphs = section[section.rindex("|\n") + 2:].strip().split("\n\n")
    print(f'.TH EMM 7 "" "emm {version}" "emm"')
    print(".SH NAME\nemm \\- variables of the environment that choose and watch a CUDA memory allocator")
    print(".SH DESCRIPTION\nPrograms that allocate through emm, and those that \\fBemm run\\fR starts, read these.\n.PP")
    print("\n.PP\n".join(roff(paragraph) for paragraph in paragraphs))
    print(".SH ENVIRONMENT\n" + "".join(entry(*row) for row in rows), end="")
    print(".SH SEE ALSO\n\\fBemm\\fR(1), \\fBemm\\-info\\fR(1), \\fBemm\\-run\\fR(1)")


if __name__ == "__main__":
    main(*sys.argv[1:])
