#!/usr/bin/env python3
"""types.py FROZEN PRESENT: writes a C file that includes the frozen headers, and says their declarations as PRESENT, a folder
of headers, says them: each function, each type of a function, and the type of each member. What differs does not compile.
"""
import pathlib
import re
import sys

from layout import STRUCT, members

FUNCTION = re.compile(r"^EMM_API\s[^;{]*?(\w+)\([^;{]*\);", re.M)
FUNCTION_TYPE = re.compile(r"^typedef\s[^;{]*?\(\*(\w+)\)\([^;{]*\);", re.M)


def declared(folder):
    """The structs by name, and by name what declares a function or the type of one."""
    text = "\n".join(re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S)
                     for path in sorted(pathlib.Path(folder).glob("*.h")))
    others = {found[1]: found[0] for kind in (FUNCTION_TYPE, FUNCTION) for found in kind.finditer(text)}
    return dict(STRUCT.findall(text)), others


def main(frozen, present):
    (old_structs, old), (structs, new) = declared(frozen), declared(present)
    print("#include <emm/array.h>\n#include <emm/plugin.h>")
    print(*(new.get(name, f"#error {name} is gone") for name in old), sep="\n")
    for name, body in old_structs.items():
        print(f"struct present_{name} {{{structs.get(name, '')}}};")
        for member in members(body):
            print(f"_Static_assert(__builtin_types_compatible_p(__typeof__((({name} *)0)->{member}),\n"
                  f'    __typeof__(((struct present_{name} *)0)->{member})), "{name}.{member}");')


if __name__ == "__main__":
    main(*sys.argv[1:])
