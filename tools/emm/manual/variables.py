#!/usr/bin/env python3
"""variables.py README DETAILS VERSION: the manual page emm(7), of README.md's table of variables and the page with their details."""
import re
import sys

ROW = re.compile(r"^\| `(\w+)` \| (.*) \| (?:(.*) )?\|$", re.M)


def roff(markdown):
    """Without links, which lead to files that are not installed."""
    text = re.sub(r" \(\[[^]]*\]\([^)]*\)\)", "", markdown)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = text.replace("**", "").replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def paragraphs(text):
    return [roff(paragraph) for paragraph in text.strip().split("\n\n") if paragraph]


def entry(name, meaning, unset, details):
    return (f".TP\n\\fB{name}\\fR\n{roff(meaning)}.\n" + (f"If unset: {roff(unset)}.\n" if unset else "")
            + "".join(f".IP\n{paragraph}\n" for paragraph in paragraphs(details)))


def main(readme, details, version):
    with open(readme, encoding="utf-8") as file:
        rows = ROW.findall(file.read().split("\n## Environment\n")[1].split("\n## ")[0])
    with open(details, encoding="utf-8") as file:
        general, *sections = file.read().split("\n## ")
    of_name = dict(section.split("\n", 1) for section in sections)
    unknown = set(of_name) - {row[0] for row in rows}
    if unknown:
        sys.exit(f"{details}: expected variables that the table in {readme} has, found {', '.join(sorted(unknown))}")
    print(f'.TH EMM 7 "" "emm {version}" "emm"')
    print(".SH NAME\nemm \\- variables of the environment that choose and watch a CUDA memory allocator")
    print(".SH DESCRIPTION\nPrograms that allocate through emm, and those that \\fBemm run\\fR starts, read these.\n.PP")
    print("\n.PP\n".join(paragraphs(general)[2:])) # behind the title and the introduction of the page
    print(".SH ENVIRONMENT\n" + "".join(entry(*row, of_name.get(row[0], "")) for row in rows), end="")
    print(".SH SEE ALSO\n\\fBemm\\fR(1), \\fBemm\\-info\\fR(1), \\fBemm\\-run\\fR(1)")


if __name__ == "__main__":
    main(*sys.argv[1:])
