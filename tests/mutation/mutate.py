#!/usr/bin/env python3
"""mutate.py pick|carry|write|record|run|figures ...: mutants of lib and of the pool, in one build; tools/mutate says more.

A mutation is a piece of a source file and another text for it. The build contains both, and the environment variable
MUTANT chooses. Operands are found by brackets and by the blanks that clang-format puts around operators; what does not
compile is left out.
"""
import difflib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIST = HERE / "list"
MUTATED = "lib", "plugins/pool"
SUITES = {"emm:unit", "emm:loader", "emm:process", "emm:model", "emm:threads", "emm:interpose"}
CHECKED = "pool", "pool:growth=segment", "passthrough"
SPLIT = "core-tests", "test-pool"  # programs that take too long as a whole: each of their cases is a test
LONGEST = 60  # seconds, for all tests of a mutant
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "&&": "||", "||": "&&"}
# The operators that end an operand, by how tightly the operator binds.
LOOSER = {"+": r"\+|-", "<": r"[<>]=?|[=!]=", "&": r"&&|\|\|"}
ENDS = r"\|\||&&|[+\-*/|&^%]?=|<<=|>>=|\?|:|return"


def blank_out(text):
    """The text with blanks for comments and for what stands between quotes: places stay the same."""
    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'|^#(?:[^\n]*\\\n)*[^\n]*"
    return re.sub(pattern, lambda found: re.sub(r"[^\n]", "_" if found[0][0] in "\"'" else " ", found[0]), text,
                  flags=re.S | re.M)


def extent(code, at, step, operators):
    """Where the operand ends that begins at `at`, to the right (step 1) or to the left (-1)."""
    opening, closing = ("([{", ")]}")[::step]
    stop = re.compile(rf" (?:{operators}) " if step > 0 else rf"(?:^|[ (])(?:{operators})\Z")
    depth = 0
    while 0 <= at < len(code):
        char = code[at]
        if depth == 0 and step < 0 and code[at:at + 2] == "}\n":
            return at  # the end of another statement
        depth += (char in opening) - (char in closing)
        if depth < 0 or (depth == 0 and (char in ";," or char in "{}")):
            return at
        if depth == 0 and char in " \n":
            near = re.sub(r"\s", " ", code[at:at + 6] + " " if step > 0 else code[max(0, at - 7):at])
            if stop.match(near) if step > 0 else stop.search(near):
                return at
        at += step
    return at


def candidates(text):
    """(begin, end, kind, mutated text) for each mutation of a file; # stands for the piece itself."""
    code = blank_out(text)
    found = []

    def add(begin, end, kind, other):
        while code[begin] in " \n":
            begin += 1
        found.append((begin, end, kind, other))

    for each in re.finditer(r"(?<=[ \n])(<=?|>=?|[=!]=|\+|-|&&|\|\|)(?=[ \n])", code):
        kind = each[1]
        ends = ENDS + "|" + LOOSER["&" if kind in ("&&", "||") else "<"]
        right_ends = ends + ("|" + LOOSER["+"] if kind in "+-" else "")
        begin = extent(code, each.start() - 1, -1, ends if kind != "&&" else ENDS) + 1
        end = extent(code, each.end(), 1, right_ends)
        left, right = text[begin:each.start()], text[each.end():end]
        if kind == "+" and re.search(r'"|string|text|name|path|tag', left + right):
            continue  # likely no numbers
        add(begin, end, f"{kind} {OTHER[kind]}", f"({left.strip()}) {OTHER[kind]} ({right.strip()})")
    for each in re.finditer(r"\bif \(", code):
        end = extent(code, each.end(), 1, "$^")
        declares = re.match(r"(const|auto)\b|[\w:<>]+ [*&]?\w+ = ", code[each.end():end])
        if ";" not in code[each.end():end] and not declares:
            add(each.end(), end, "negated", "!(#)")
    for each in re.finditer(r"^ +return ([^;{}]+);", code, re.M):
        value = each[1].strip()
        other = {"true": "false", "false": "true", "EMM_OK": "EMM_E_PLUGIN_FAILED", "0": "1"}.get(value, "std::decay_t<decltype(#)>{}")
        if value != "nullptr":
            add(each.start(1), each.end(1), "returns", other)
    for each in re.finditer(r"(?<=[;{}])\s+(?:\+\+|--)?[\w:.\->\[\]*]+(?:\(| [+\-|&]?= )[^;{}]*;", code):
        constructs = re.match(r"\s*(?:EMM_CUDA_|[A-Z][a-z])\w*\(|.*= (delete|default);", each[0], re.S)
        if not constructs and not re.match(r"\s*(return|else|throw|delete|static_assert|using)\b", each[0]):
            add(each.start(), each.end(), "dropped", "")
    for each in re.finditer(r"(?<![\w.'\[])(\d+)(?![\w.'])", code):
        add(each.start(), each.end(), "constant", str(int(each[1]) + 1))
    return sorted({place for place in found if is_inside(code, place[0])})


def is_inside(code, at):
    """Whether a place lies in a function, and in nothing that is fixed when it is compiled."""
    line = code[code.rfind("\n", 0, at) + 1:code.find("\n", at)]
    return line.startswith("    ") and not re.search(r"\b(constexpr|constinit|alignas|static_assert|case|enum|template|using)\b", line)


def mutation(number, piece, kind, other):
    other = other.replace("#", piece)
    if kind == "dropped":
        return f"if (!is_mutant({number})) {{ {piece} }}"
    return f"(is_mutant({number}) ? {other} : {'bool(' + piece + ')' if kind == 'negated' else piece})"


def listed(*folders):
    done = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def sources():
    return [name for name in listed(*MUTATED) if name.endswith((".cpp", ".h"))]


def place_of(text, name, begin):
    row = text.count("\n", 0, begin) + 1
    return f"{name}:{row}:{begin - text.rfind(chr(10), 0, begin)}"


class Mutants:
    """The rows of the list: a number, a place, a kind, and what came of it."""

    def __init__(self):
        self.rows = []
        for line in LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []:
            if not line.startswith("#"):
                number, place, kind, outcome = line.split(" | ", 3)
                self.rows.append([int(number), place, kind, outcome])

    def save(self):
        head = "# number | place | mutation | outcome. Places are those of the commit in which this file was last changed.\n"
        rows = [f"{number:03} | {place} | {kind} | {outcome}\n" for number, place, kind, outcome in self.rows]
        LIST.write_text(head + "".join(rows), encoding="utf-8")


def pick(count, seed):
    """Chooses mutations at random; no two of them overlap."""
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in sources()}
    everything = [(name, *each) for name, text in texts.items() for each in candidates(text)]
    print(f"{len(everything)} mutations in {len(texts)} files")
    random.Random(seed).shuffle(everything)
    taken, mutants = {}, Mutants()
    mutants.rows = []
    for name, begin, end, kind, _ in everything:
        others = taken.setdefault(name, [])
        if len(mutants.rows) < count and all(end <= b or e <= begin for b, e in others):
            others.append((begin, end))
            mutants.rows.append([len(mutants.rows) + 1, place_of(texts[name], name, begin), kind, "open"])
    mutants.save()


def lines_after(old, new):
    """The line numbers of the old text that the new one still has, with those that they have there."""
    blocks = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False).get_matching_blocks()
    return {begin + at + 1: then + at + 1 for begin, then, size in blocks for at in range(size)}


def carry(commit):
    """Brings the places of the list from a commit to the sources of today. A mutant whose line has changed leaves the
    list; one that survived is open again, because there may be new tests."""
    mutants, lines = Mutants(), {}
    for row in mutants.rows:
        name, line, column = row[1].split(":")
        if name not in lines:
            old = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            path = ROOT / name
            lines[name] = lines_after(old.stdout, path.read_text(encoding="utf-8")) if path.exists() else {}
        now = lines[name].get(int(line))
        row[1] = f"{name}:{now}:{column}" if now else ""
        row[3] = "open" if row[3].startswith("survived") else row[3]
    before = len(mutants.rows)
    mutants.rows = [row for row in mutants.rows if row[1]]
    mutants.save()
    print(f"{before - len(mutants.rows)} of {before} mutants have gone with their lines")


def write(folder):
    """Brings a copy of the tree, with the mutants in it, up to date."""
    wanted = {}
    for number, place, kind, outcome in Mutants().rows:
        if outcome != "does not compile":
            wanted.setdefault(place.split(":")[0], {})[place, kind] = number
    for name in listed():
        content = (ROOT / name).read_bytes()
        if name in wanted:
            content = mutated(name, content.decode(), wanted[name]).encode()
        path = pathlib.Path(folder, name)
        if not path.exists() or path.read_bytes() != content: # others keep their times, and are not built again
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod((ROOT / name).stat().st_mode)


def mutated(name, text, numbers):
    pieces, at = [], 0
    for begin, end, kind, other in candidates(text):
        number = numbers.pop((place_of(text, name, begin), kind), None)
        if number:
            pieces += [text[at:begin], mutation(number, text[begin:end], kind, other)]
            at = end
    if numbers:
        sys.exit(f"error: no longer in {name}: {numbers}; pick anew")
    return f'#include "{HERE}/mutant.h"\n#include <type_traits>\n#line 1\n' + "".join(pieces) + text[at:]


def drop(log):
    """Leaves out the mutants in whose lines a compiler has found errors; tells how many."""
    mutants, dropped = Mutants(), 0
    for name, line in set(re.findall(r"((?:lib|plugins)/[\w/]+\.(?:cpp|h)):(\d+):\d+: error", pathlib.Path(log).read_text("utf-8"))):
        near = [row for row in mutants.rows if row[3] == "open" and row[1].startswith(name + ":")
                and int(row[1].split(":")[1]) <= int(line)]
        if near:
            max(near, key=lambda row: int(row[1].split(":")[1]))[3] = "does not compile"
            dropped += 1
    mutants.save()
    print(dropped)


def cases_of(test):
    """The names of the cases of a Catch2 program, version 2 or 3."""
    for words in (["--list-tests", "--verbosity", "quiet"], ["--list-test-names-only"]):
        done = subprocess.run([test["cmd"][0], *words], env={**os.environ, **test["env"]}, stdout=subprocess.PIPE, text=True, check=False)
        lines = done.stdout.splitlines()
        if lines and not lines[0].startswith("All available"):
            return [line for line in lines if line and not line.startswith(" ")]
    return []


def only(case):
    """The argument with which Catch2 runs that case alone."""
    return re.sub(r"([\\,\[\]*])", r"\\\1", case)


class Tests:
    """The tests of a build that passed without a mutant: seconds, and the mutants that they reach."""

    def __init__(self, build):
        self.build = pathlib.Path(build)
        listed = subprocess.run(["meson", "introspect", build, "--tests"], stdout=subprocess.PIPE, check=True)
        self.all = {test["name"]: test for test in json.loads(listed.stdout)
                    if SUITES & set(test["suite"]) and not {"emm:soak", "emm:ten-million"} & set(test["suite"])}
        self.all = {name: test for name, test in self.all.items() if pathlib.Path(test["cmd"][0]).exists()}
        for name in [name for name, test in self.all.items() if pathlib.Path(test["cmd"][0]).name in SPLIT and not test["cmd"][1:]]:
            test = self.all.pop(name)
            self.all |= {f"{name}: {case}": {**test, "cmd": [*test["cmd"], only(case)]} for case in cases_of(test)}
        tool = str(self.build / "tools/emm/emm")
        told = subprocess.run([tool, "check", "--list", "--json"], stdout=subprocess.PIPE, check=True)
        for case in dict.fromkeys(each["name"].split("@")[0] for each in json.loads(told.stdout)["cases"]):
            for spec in CHECKED: # each case by itself: the suite as a whole takes longer
                self.all[f"emm check {spec} {case}"] = {"workdir": None, "env": {"EMM_DRIVER": "sim"},
                                                        "cmd": [tool, "check", spec, "--filter", case]}
        self.file = self.build / "reached.json"
        self.known = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}

    def run(self, name, limit, **variables):
        """"passed", "failed" or "hangs", and the seconds."""
        test, begin = self.all[name], time.monotonic()
        with subprocess.Popen(test["cmd"], cwd=test["workdir"] or self.build, start_new_session=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, **test["env"], **variables}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            try:
                how = "passed" if process.wait(limit) in (0, 77) else "failed"
            except subprocess.TimeoutExpired:
                how = "hangs"
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return how, time.monotonic() - begin

    def record(self, longest):
        reached = self.build / "reached"
        for name in self.all:
            if name in self.known:
                continue
            reached.write_text("", encoding="utf-8")
            how, seconds = self.run(name, longest, MUTANTS_REACHED=str(reached))
            numbers = sorted({int(line) for line in reached.read_text(encoding="utf-8").split()})
            self.known[name] = {"how": how, "seconds": round(seconds, 2), "reached": numbers}
            self.file.write_text(json.dumps(self.known), encoding="utf-8")

    def of(self, number):
        names = [name for name, known in self.known.items() if number in known["reached"] and known["how"] == "passed"]
        # A test that reaches few mutants is about those; one that reaches all of them shows little of each.
        return sorted(names, key=lambda name: self.known[name]["seconds"] * len(self.known[name]["reached"]))

    def kill(self, number):
        """Runs the tests of a mutant; returns its end."""
        names, begin = self.of(number), time.monotonic()
        for tried, name in enumerate(names):
            left = LONGEST - (time.monotonic() - begin)
            if left < self.known[name]["seconds"]:
                return f"survived: {tried} of {len(names)} tests in {LONGEST} s"
            limit = min(left, 10 + 5 * self.known[name]["seconds"])
            how, _ = self.run(name, limit, MUTANT=str(number))
            # On a busy machine a test may take long without a mutant, too.
            if how != "passed" and self.run(name, limit / 2 if how == "hangs" else LONGEST)[0] == "passed":
                return f"killed: {name}" + (" (hangs)" if how == "hangs" else "")
        return f"survived: {len(names)} tests" if names else "survived: no test reaches it"


def run(build, seconds):
    tests, mutants, end = Tests(build), Mutants(), time.monotonic() + seconds
    for row in mutants.rows:
        if row[3] == "open" and time.monotonic() < end:
            row[3] = tests.kill(row[0])
            mutants.save()
            print(*row, sep=" | ", flush=True)


def figures():
    outcomes = [row[3].split(":")[0] for row in Mutants().rows]
    counts = {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
    print(", ".join(f"{outcome}: {count}" for outcome, count in counts.items()))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "pick":
        pick(int(words[0]), int(words[1]))
    elif what == "carry":
        carry(words[0])
    elif what == "write":
        write(words[0])
    elif what == "drop":
        drop(words[0])
    elif what == "record":
        Tests(words[0]).record(float(words[1]))
    elif what == "run":
        run(words[0], float(words[1]))
    else:
        figures()
