#!/usr/bin/env python3
"""Compiles each public header alone, and a use of its streams, in every language version that emm promises,
before and after cuda.h, with all warnings as errors.

    compile.py INCLUDE CUDA_INCLUDE COMPILER... -- HEADER...
"""
import itertools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CXX = ["c++11", "c++14", "c++17", "c++20"]
STANDARDS = {"emm/emm.hpp": {"c++": ["c++20"]}, "emm/plugin.hpp": {"c++": CXX}}
APPLICATIONS = {"emm/emm.h", "emm/emm.hpp", "emm/array.h"}
EVERY = {"c": ["c99", "c11"], "c++": CXX}
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
OF_LANGUAGE = {"c": [], "c++": ["-Wold-style-cast"]}


def sources(include, header):
    """(name, text): alone, twice, before and after cuda.h, with the types agreeing."""
    streams = re.findall(r"^#define (EMM_\w+) .*(?:emm_stream|EMM_STREAM_)", pathlib.Path(include, header).read_text(), re.M)
    this, cuda = f"#include <{header}>\n", "#include <cuda.h>\n"
    agree = ("CUdeviceptr a; CUstream b; CUcontext c;\n"
             "emm_deviceptr *pa = &a; emm_stream *pb = &b; struct CUctx_st **pc = &c;\n")
    helpers = ("#ifdef EMM_PLUGIN_HELPERS_H\n#error they are for plugins\n#endif\n#include <emm/plugin.h>\n"
               "#ifndef EMM_PLUGIN_HELPERS_H\n#error plugin.h has them until 2.0\n#endif\n")
    use = "".join(f"emm_stream a_{name} = {name};\n" for name in dict.fromkeys(streams))
    yield "alone, and twice", this + this + use
    if header in APPLICATIONS:
        yield "without plugin.h's helpers", this + helpers
    if header == "emm/status.h":
        agree = ""
    yield "before cuda.h", this + cuda + agree
    yield "after cuda.h", cuda + this + agree


def without_exceptions(compiler, include, cuda, header):
    """Programs that are built without them include the C headers too."""
    answer = subprocess.run([compiler, "-x", "c++", "-std=c++17", "-fno-exceptions", *WARNINGS, "-I", include,
                             "-isystem", cuda, "-fsyntax-only", "-"],
                            input=f"#include <{header}>\n", capture_output=True, text=True)
    return answer.stderr


def refuses_older(compiler, include, header):
    """A header for C++20 says so in one error, not in a hundred."""
    answer = subprocess.run([compiler, "-x", "c++", "-std=c++17", "-I", include, "-fsyntax-only", "-"],
                            input=f"#include <{header}>\n", capture_output=True, text=True)
    return answer.stderr.count("error:") == 1 and "needs C++20" in answer.stderr


def main():
    split = sys.argv.index("--")
    include, cuda, *compilers = sys.argv[1:split]
    compilers = [c for c in compilers if shutil.which(c)]
    failures = runs = 0
    with tempfile.NamedTemporaryFile("w", suffix=".h") as file:
        for header, compiler in itertools.product(sys.argv[split + 1:], compilers):
            for what, text in sources(include, header):
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()
                for language, standards in STANDARDS.get(header, EVERY).items():
                    if "++" in compiler and language == "c":
                        continue
                    for standard in standards:
                        runs += 1
                        answer = subprocess.run(
                            [compiler, "-x", language, f"-std={standard}", *WARNINGS,
                             *OF_LANGUAGE[language], "-I", include, "-isystem", cuda, "-fsyntax-only", file.name],
                            capture_output=True, text=True)
                        if answer.returncode != 0:
                            failures += 1
                            print(f"{header} {what}, {compiler} -std={standard}:\n{answer.stderr}")
    for header, compiler in itertools.product(sys.argv[split + 1:], compilers):
        if header == "emm/emm.hpp" and not refuses_older(compiler, include, header):
            failures += 1
            print(f"{header}, {compiler} -std=c++17: expected one error, which names C++20")
        if header.endswith(".h") and (said := without_exceptions(compiler, include, cuda, header)):
            failures += 1
            print(f"{header}, {compiler} -fno-exceptions:\n{said}")
    print(f"{runs} compilations with {', '.join(compilers)}, {failures} failed")
    return failures != 0 or runs == 0


if __name__ == "__main__":
    sys.exit(main())
