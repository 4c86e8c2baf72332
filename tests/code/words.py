#!/usr/bin/env python3
"""words.py ROOT: comments have things as subjects, not "what" or "which", and use the field's terms."""
import os
import re
import sys

from tree import files_of, text_of

FOLDERS = ("include/", "lib/", "plugins/", "tests/", "tools/")
LEFT_ALONE = ("tests/abi/",)  # frozen
# The name of a case of `emm check`, as streams/waits-for-nobody, is public and stays.
VAGUE = re.compile(r"(?<![\w/-])(somebody|nobody|whoever|anybody|someone)\b", re.I)
PRIVATE = {
    "turnstile": "OwnerLock", "whereabouts": "epoch slot", "scribe": "log writer",
    "wayhome": "deallocator", "patience": "time-out", "see_everywhere": "asymmetric fence",
    "gate": "state flags", "duty": "requirement", "breach": "violation",
}
IDIOMS = {"for good": "permanently", "in vain": "without success", "to and fro": "back and forth"}
IDIOM = re.compile(r"^[^\"]*(?://|/?\*|\#) .*\b(" + "|".join(IDIOMS) + r")\b")
PRIVATE_WORD = re.compile(r"\b(" + "|".join(PRIVATE) + r")s?\b", re.I)
TEXTS = (".h", ".hpp", ".c", ".cpp", ".md")
CLAUSE = re.compile(r"""^\s*(?://|\#|/\*|\*)\ (?:What|Which|Whose)\b         # a line of a comment
                     |\S\s+(?://|/\*)\ (?:[Ww]hat|[Ww]hich|[Ww]hose)\b    # behind code
                     |^\s*(?://|\#|/\*)\ -+\ (?:what|which|whose)\b       # a heading
                     |^\s*r?"{3}(?:What|Which|Whose)\b                    # a docstring""", re.X)
FRAGMENT = re.compile(r'^\s*(?://|#|/\*|r?"{3})\s?(?:Of|Those|That of|So that|As much)\b')
COMMENT = re.compile(r"^\s*(?://|#|/?\*)")
SOURCES = (".h", ".hpp", ".c", ".cpp", ".S", ".py", ".sh", "meson.build")


def faults(name, text):
    if not name.startswith(FOLDERS) or name.startswith(LEFT_ALONE):
        return
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if name.endswith(SOURCES) and FRAGMENT.search(line) and not COMMENT.search(before):
            yield f"{name}:{number}: a comment names what it is about first, not 'of' it"
        before = line
        if name.endswith(TEXTS):
            for found in VAGUE.findall(line):
                yield f"{name}:{number}: '{found}' is no subject: name the caller, the thread, the user"
            for found in PRIVATE_WORD.findall(line):
                yield f"{name}:{number}: '{found}': the field says {PRIVATE[found.lower()]}"
        for found in IDIOM.findall(line) if name.endswith(SOURCES) else ():
            yield f"{name}:{number}: '{found}': say {IDIOMS[found]}"
        if name.endswith(SOURCES) and CLAUSE.search(line):
            yield f"{name}:{number}: a comment begins with its subject, not with 'what' or 'which'"


def main():
    root = sys.argv[1]
    found = [fault for name in files_of(root) if name.endswith(TEXTS + SOURCES)
             for fault in faults(name, text_of(os.path.join(root, name)) or "")]
    print("\n".join(found) or "the words are the field's")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
