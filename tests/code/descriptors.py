#!/usr/bin/env python3
"""descriptors.py ROOT: what the product opens is closed in programs that are exec'ed, from the start.

A flag that is set afterwards comes too late for a program that another thread starts meanwhile. CUDA
gives out descriptors without it (cuMemExportToShareableHandle); nothing can be done about those.
"""
import os
import re
import sys

FLAGS = {"open": "O_CLOEXEC", "openat": "O_CLOEXEC", "open_by_handle_at": "O_CLOEXEC",
         "socket": "SOCK_CLOEXEC", "socketpair": "SOCK_CLOEXEC", "accept4": "SOCK_CLOEXEC",
         "recvmsg": "MSG_CMSG_CLOEXEC", "recvmmsg": "MSG_CMSG_CLOEXEC", "pipe2": "O_CLOEXEC",
         "memfd_create": "MFD_CLOEXEC", "epoll_create1": "EPOLL_CLOEXEC", "eventfd": "EFD_CLOEXEC",
         "timerfd_create": "TFD_CLOEXEC", "signalfd": "SFD_CLOEXEC", "dup3": "O_CLOEXEC",
         "inotify_init1": "IN_CLOEXEC", "mkostemp": "O_CLOEXEC"}
UNFIT = {"accept": "accept4", "dup": "fcntl with F_DUPFD_CLOEXEC", "pipe": "pipe2",
         "creat": "open", "mkstemp": "mkostemp", "epoll_create": "epoll_create1",
         "inotify_init": "inotify_init1", "tmpfile": "open with O_TMPFILE", "popen": "posix_spawn",
         "freopen": "fopen"}
CALL = re.compile(r"\b(" + "|".join([*FLAGS, *UNFIT, "fopen"]) + r")\s*\(")
# Before a member, or a function of a class: `file.open(found)`, `Spool::open(path)`.
OF_ANOTHER = re.compile(r"(\.|->|\w::)$")
STREAM = re.compile(r"\bstd::(?:basic_)?([io]?fstream)\b|\bbasic_file_sink")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def arguments(text, begin):
    depth = 1
    for end in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin:end]
    return text[begin:]


def is_another(text, begin):
    """Whether it is one of the same name: a class's, or one that is declared here, by its type."""
    if OF_ANOTHER.search(text[max(0, begin - 3):begin]):
        return True
    before = re.search(r"([\w>&*]+)\s+$", text[max(0, begin - 80):begin])
    return bool(before) and before.group(1) not in ("return", "case", "throw", "else", "do")


def expanded(given, text):
    """With what the file's own constants stand for."""
    for name in set(re.findall(r"\b[a-z]\w*\b", given)):
        constant = re.search(rf"\bconstexpr int {name} = ([^;]*);", text)
        given += f" {constant.group(1)}" if constant else ""
    return given


def complaint(name, given):
    if name in UNFIT:
        return f"{name}: {UNFIT[name]} can make it close-on-exec"
    if name == "fopen":
        return None if re.search(r'"\w*e\w*"', given) else "fopen: has no e in its mode"
    if name in ("open", "openat") and not re.search(r"\bO_\w+", given):
        return None # another function of that name
    if name in FLAGS and FLAGS[name] not in given:
        return f"{name}: has no {FLAGS[name]}"
    return None


def faults_of(text):
    if not CALL.search(text) and not STREAM.search(text):
        return
    plain = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for match in STREAM.finditer(plain):
        yield match.start(), f"{match.group()}: cannot be close-on-exec"
    for match in CALL.finditer(plain):
        said = complaint(match.group(1), expanded(arguments(plain, match.end()), plain))
        if said and not is_another(plain, match.start()):
            yield match.start(), said


def faults(root):
    for folder in ("lib", "plugins", "tools"):
        for path, folders, files in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".h", ".hpp", ".c", ".cpp")):
                    whole = os.path.join(path, name)
                    with open(whole, encoding="utf-8") as file:
                        text = file.read()
                    for at, said in sorted(faults_of(text)):
                        line = text.count("\n", 0, at) + 1
                        yield f"{os.path.relpath(whole, root)}:{line}: {said}"


def main():
    found = list(faults(sys.argv[1]))
    print("\n".join(found) or "what is opened is close-on-exec")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
