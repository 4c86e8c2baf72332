#!/usr/bin/env python3
"""python_layouts.py ROOT: the offsets in lib/observe/callers/python_layout.cpp are those in the headers of each
interpreter that is found: python3 and python3.N in PATH, the system's, and those installed beside this one."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
TABLE = "lib/observe/callers/python_layout.cpp"
# The order is that of the table. Before 3.12 no frame separates calls of Python by C code, so `owner` is 0.
PROGRAM = r"""
#define Py_BUILD_CORE
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_frame.h>
#define FRAME(field) offsetof(_PyInterpreterFrame, field)
#else
#define FRAME(field) offsetof(PyFrameObject, field)
#endif
#define STATE(field) offsetof(PyThreadState, field)
#define CODE(field) offsetof(PyCodeObject, field)
int main(void) {
    const size_t offsets[] = {
#if PY_VERSION_HEX >= 0x030D0000
        STATE(current_frame), 0, 0, FRAME(previous), FRAME(f_executable), FRAME(owner), FRAME(instr_ptr),
        CODE(co_code_adaptive), CODE(co_filename), CODE(co_qualname), CODE(co_firstlineno)
#elif PY_VERSION_HEX >= 0x030B0000
        STATE(cframe), 1, offsetof(_PyCFrame, current_frame), FRAME(previous), FRAME(f_code),
        PY_VERSION_HEX >= 0x030C0000 ? FRAME(owner) : 0, FRAME(prev_instr),
        CODE(co_code_adaptive), CODE(co_filename), CODE(co_qualname), CODE(co_firstlineno)
#else
        STATE(frame), 0, 0, FRAME(f_back), FRAME(f_code), 0, 0,
        0, CODE(co_filename), CODE(co_name), CODE(co_firstlineno)
#endif
    };
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) printf("%zu ", offsets[i]);
    return 0;
}
"""


def rows_in(text):
    """By minor version: the numbers of a row, whose comment names the version."""
    rows = re.findall(r"\{([^{}]*)\}, +// 3\.(\d+)", text)
    as_number = {"true": 1, "false": 0}
    return {int(minor): [as_number.get(each) if each in as_number else int(each) for each in row.split(", ")]
            for row, minor in rows}


def interpreters(minors):
    """By minor version: the folder of its headers."""
    names = ["python3", "/usr/bin/python3"] + [f"python3.{minor}" for minor in minors]
    beside = pathlib.Path(sys.base_prefix).parent.glob("*/bin/python3")
    question = "import sys, sysconfig; print(sys.version_info[1], sysconfig.get_path('include'))"
    found = {}
    for name in filter(None, [*map(shutil.which, names), *beside]):
        done = subprocess.run([name, "-c", question], capture_output=True, text=True, check=False)
        minor, _, folder = done.stdout.strip().partition(" ")
        if done.returncode == 0 and os.path.exists(os.path.join(folder, "internal/pycore_code.h")):
            found.setdefault(int(minor), folder)
    return found


def offsets_in(headers, folder):
    source, program = os.path.join(folder, "offsets.c"), os.path.join(folder, "offsets")
    pathlib.Path(source).write_text(PROGRAM, encoding="utf-8")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-w", "-I", headers, "-I", f"{headers}/internal", "-o", program, source], check=True)
    return [int(number) for number in subprocess.check_output([program], text=True).split()]


def main():
    rows = rows_in(pathlib.Path(sys.argv[1], TABLE).read_text(encoding="utf-8"))
    found = {minor: folder for minor, folder in interpreters(rows).items() if minor in rows}
    if not found:
        print("no interpreter whose version is in the table has its headers here")
        return SKIPPED
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for minor, headers in sorted(found.items()):
            real = offsets_in(headers, folder)
            print(f"3.{minor}: {real} in {headers}")
            if real != rows[minor]:
                wrong += 1
                print(f"{TABLE}: 3.{minor}: expected {real}, found {rows[minor]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
