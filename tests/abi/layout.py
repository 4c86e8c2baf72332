#!/usr/bin/env python3
"""layout.py HEADER...: writes a C file with each member and value of these headers, one a line.

It is compiled against the frozen headers and against the present ones (layout_test.c).
"""
import re
import sys

STRUCT = re.compile(r"(?:typedef )?struct (emm_\w+) \{(.*?)\}(?: \1)?;", re.S)
MEMBER = re.compile(r"\(\*(\w+)\)\(|(\w+)(?:\[\w+\])?;")
VALUE = re.compile(r"^#define (EMM_[A-Z0-9_]+[A-Z0-9]) (.*)$", re.M)
NO_VALUE = {"EMM_API", "EMM_PLUGIN_ENTRY", "EMM_PLUGIN_ENTRY_SYMBOL", "EMM_LAYER_ENTRY", "EMM_LAYER_ENTRY_SYMBOL"}
# It counts upwards; what is frozen is the major.
NOT_FROZEN = {"EMM_PLUGIN_ABI_MINOR"}


def members(body):
    """The names, in their order: of function pointers what stands behind the star."""
    body = re.sub(r"\(\*(\w+)\)\(.*?\);", r"\1;", body, flags=re.S)
    return [name for _, name in MEMBER.findall(body)]


def main():
    lines = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for struct, body in STRUCT.findall(text):
            lines += [f"MEMBER({struct}, {member})" for member in members(body)]
        lines += [f"VALUE({name})" for name, _ in VALUE.findall(text)
                  if name not in NO_VALUE | NOT_FROZEN]
    print('#include "layout.h"\n')
    print("\n".join(f"#include <emm/{name}.h>" for name in ("array", "emm", "plugin")))
    print("""
#define MEMBER(type, member) {#type "." #member, offsetof(type, member), sizeof(((type *)0)->member)},
#define VALUE(name) {#name, 0, (size_t)(name)},
const struct layout_line LAYOUT[] = {""")
    print("\n".join(lines))
    print("{NULL, 0, 0}};")


if __name__ == "__main__":
    main()
