#include "facts.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace {

const char *current_case = "";
int wrong = 0;

void print(const char *format, va_list arguments, const char *answer) {
    printf("%s: ", current_case);
    vprintf(format, arguments);
    printf(": %s\n", answer);
    fflush(stdout);
}

} // namespace

void begin_case(const char *name) {
    current_case = name;
}

void skipped(const char *why) {
    printf("%s: skipped: %s\n", current_case, why);
}

void fact(bool holds, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print(format, arguments, holds ? "yes" : "no, which is wrong");
    va_end(arguments);
    wrong += !holds;
}

void result(CUresult got, CUresult documented, const char *format, ...) {
    const bool holds = got == documented;
    char answer[256];
    snprintf(answer, sizeof answer, holds ? "%s" : "%s, which is wrong: %s is documented",
             name_of(got), name_of(documented));
    va_list arguments;
    va_start(arguments, format);
    print(format, arguments, answer);
    va_end(arguments);
    wrong += !holds;
}

void told(const char *answer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print(format, arguments, answer);
    va_end(arguments);
}

const char *name_of(CUresult code) {
    const char *name = nullptr;
    return cu.cuGetErrorName(code, &name) == CUDA_SUCCESS ? name : "no CUresult";
}

void need(CUresult got, const char *call) {
    if (got != CUDA_SUCCESS) {
        printf("%s: %s: %s, which ends the case\n", current_case, call, name_of(got));
        fflush(stdout);
        _Exit(3);
    }
}

int wrong_facts() {
    return wrong;
}
