#!/usr/bin/env python3
"""report.py ROOT [FOLDER]: with the folder of tools/coverage's build, tells the lines and branches that tests have run, and
fails if they are fewer than the goals, or if a file has more lines that were not run than its row in README.md says.
Without a folder it reads that table alone."""
import collections
import json
import os
import re
import sys

GOALS = {"lines": 95.0, "branches": 85.0}  # percent
UNLISTED = 5  # lines not run that a file may have without a row
# One template with an instance for each entry of the driver that can be held: gcov lists the branches of every instance.
ONE_TEMPLATE = "tools/interpose/hold.h"
PARTS = ("lib", "plugins", "tools/interpose")
ROW = re.compile(r"\| `([^`|]+)` \| (\d+) \| ([^|]*\w[^|]*) \|")


def rows(page):
    """The lines that each file may leave out, by its path; and what is wrong with the table."""
    table, wrong = {}, []
    for line in page.splitlines():
        if not line.startswith("| `"):
            continue
        row = ROW.fullmatch(line)
        if not row:
            wrong.append(f"expected | `file` | lines | reason |, found {line}")
        elif row[1] in table:
            wrong.append(f"{row[1]}: has two rows")
        else:
            table[row[1]] = int(row[2])
    return table, wrong


def merged(file):
    """How often each line of a file was run, each of its branches, and the function of each line. Instances of a template
    and copies in several libraries have lines and branches of their own. gcov 12 marks the branches of exceptions in
    those copies alone that were run, so they are left out here and not by gcovr."""
    lines, branches, exceptional, functions = collections.Counter(), collections.Counter(), set(), {}
    for line in file["lines"]:
        number = line["line_number"]
        lines[number] += line["count"]
        functions[number] = line.get("function_name", "")
        for index, branch in enumerate(line["branches"]):
            branches[number, index] += branch["count"]
            if branch["throw"]:
                exceptional.add((number, index))
    return lines, {place: count for place, count in branches.items() if place not in exceptional}, functions


def faults(table, left):
    """`left`: the number of lines not run of each file."""
    for file, lines in sorted(left.items()):
        allowed = table.get(file, UNLISTED)
        if lines > allowed:
            yield f"{file}: {lines} lines are not run, its row says {allowed}"
    for file in sorted(table.keys() - left.keys()):
        yield f"{file}: has a row, but is not built"


def share(counts):
    return 100 * sum(count > 0 for count in counts) / max(len(counts), 1)


def main():
    root = sys.argv[1]
    with open(os.path.join(root, "tests/coverage/README.md"), encoding="utf-8") as file:
        table, wrong = rows(file.read())
    wrong += [f"{name}: is not there" for name in table if not os.path.isfile(os.path.join(root, name))]
    if len(sys.argv) > 2:
        folder = sys.argv[2]
        with open(os.path.join(folder, "coverage.json"), encoding="utf-8") as file:
            files = {found["file"]: merged(found) for found in json.load(file)["files"]}
        left = {name: sorted(number for number, count in lines.items() if count == 0) for name, (lines, _, _) in files.items()}
        with open(os.path.join(folder, "not_run.txt"), "w", encoding="utf-8") as file:
            for name, (_, branches, functions) in sorted(files.items()):
                file.writelines(f"{name}:{number}: {functions[number]}\n" for number in left[name])
                file.writelines(f"{name}:{number}: branch {index}\n" for (number, index), count in sorted(branches.items())
                                if count == 0 and number not in left[name])
        wrong += faults(table, {name: len(lines) for name, lines in left.items()})
        for part in PARTS + ("",):
            lines = [count for name in files if name.startswith(part) for count in files[name][0].values()]
            branches = [count for name in files if name.startswith(part) and name != ONE_TEMPLATE
                        for count in files[name][1].values()]
            print(f"{part or 'all'}: {share(lines):.1f} % of {len(lines)} lines, "
                  f"{share(branches):.1f} % of {len(branches)} branches")
        wrong += [f"{name}: {found:.1f} % are run, the goal is {GOALS[name]} %"
                  for name, found in (("lines", share(lines)), ("branches", share(branches))) if found < GOALS[name]]
    print("\n".join(wrong) or "each file with lines that are not run is listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
