#!/usr/bin/env python3
"""mutate_test.py COMPILER...: what tools/mutate changes in a source file, and that one mutant at a time is in force."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import mutate

COMPILER = sys.argv[1:]
SOURCE = """#include <cstdio> // a + b
static int least = 4;
int sum(int a, int b) {
    if (a < b && b != 7) {
        least = a;
    }
    return a + b;
}
int main() {
    constexpr int fixed = 9; // stays
    std::printf("%d ", sum(2, 2) + fixed);
    std::printf("%d ", least);
    std::printf("%d ", sum(1, 2));
    std::printf("%d\\n", least);
    return 0;
}
"""


class Mutations(unittest.TestCase):
    def test_operands_end_where_looser_operators_begin(self):
        line = "    x = f(a, b + c) - d < e && g ? h : i;\n"
        found = {kind: line[begin:end] for begin, end, kind, _ in mutate.candidates(line)}
        self.assertEqual(found, {"+ -": "b + c", "- +": "f(a, b + c) - d", "< <=": "f(a, b + c) - d < e",
                                 "&& ||": "f(a, b + c) - d < e && g"})

    def test_comments_texts_and_what_is_fixed_when_it_is_compiled_stay(self):
        for line in ('    f("a + b", c); // d + e\n', "    constexpr int f = a + b;\n", "    case a + b:\n",
                     "#define F \\\n    a + b\n"):
            self.assertFalse([kind for _, _, kind, _ in mutate.candidates(line) if kind == "+ -"], line)

    def test_a_line_is_found_again_after_others_have_changed(self):
        self.assertEqual(mutate.lines_after("a\nb\nc\nd\n", "new\na\nB\nc\nd\n"), {1: 2, 3: 4, 4: 5})

    def test_the_name_of_a_case_chooses_this_case_alone(self):
        self.assertEqual(mutate.only("a, b [c] *"), "a\\, b \\[c\\] \\*")

    def test_one_mutant_at_a_time_is_in_force_and_those_that_were_passed_are_noted(self):
        everything, numbers = mutate.candidates(SOURCE), {}
        for begin, end, kind, _ in everything:
            if not any(b < end and begin < e for b, e in numbers.values()):
                numbers[mutate.place_of(SOURCE, "s", begin), kind] = begin, end
        numbers = {key: number for number, key in enumerate(numbers, 1)}
        self.assertGreater(len(numbers), 5)
        with tempfile.TemporaryDirectory() as folder:
            path, program, reached = (pathlib.Path(folder, name) for name in ("s.cpp", "s", "reached"))
            path.write_text(mutate.mutated("s", SOURCE, dict(numbers)), encoding="utf-8")
            subprocess.run([*COMPILER, "-std=c++20", path, "-o", program], check=True)

            def run(**variables):
                done = subprocess.run([program], env={**os.environ, **variables}, stdout=subprocess.PIPE, check=False)
                return done.stdout, done.returncode

            expected = b"13 4 3 1\n", 0
            self.assertEqual(run(), expected)
            for key, number in numbers.items():
                self.assertNotEqual(run(MUTANT=str(number)), expected, key)
            reached.touch()
            run(MUTANTS_REACHED=str(reached))
            self.assertEqual(sorted(map(int, reached.read_text("utf-8").split())), sorted(numbers.values()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
