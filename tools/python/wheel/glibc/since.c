/* Functions newer than glibc 2.28 that emm, libstdc++.a or the start of a program uses, written
 * with those of 2.28. Part of each library and program of a wheel, and hidden there; the linker
 * leaves out unused ones. Headers redirect some of these names, so they are declared here. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)

/* 2.30. */
pid_t gettid(void) {
    return (pid_t)syscall(SYS_gettid);
}

/* 2.32. Code that reads this variable uses atomic operations if it is 0. */
char __libc_single_threaded;

/* 2.33. Before, the names below were in each program, and passed on the version of struct stat. */
#ifdef __x86_64__
enum { VERSION_OF_STAT = 1 };
#else
enum { VERSION_OF_STAT = 0 };
#endif
struct stat;
#pragma GCC visibility push(default)
int __xstat(int version, const char *path, struct stat *status);
int __lxstat(int version, const char *path, struct stat *status);
int __fxstat(int version, int file, struct stat *status);
int __fxstatat(int version, int folder, const char *path, struct stat *status, int flags);
#pragma GCC visibility pop

int stat(const char *path, struct stat *status) {
    return __xstat(VERSION_OF_STAT, path, status);
}
int lstat(const char *path, struct stat *status) {
    return __lxstat(VERSION_OF_STAT, path, status);
}
int fstat(int file, struct stat *status) {
    return __fxstat(VERSION_OF_STAT, file, status);
}
int fstatat(int folder, const char *path, struct stat *status, int flags) {
    return __fxstatat(VERSION_OF_STAT, folder, path, status, flags);
}
/* One struct for both on 64-bit processors. */
int stat64(const char *path, struct stat *status) __attribute__((alias("stat")));
int lstat64(const char *path, struct stat *status) __attribute__((alias("lstat")));
int fstat64(int file, struct stat *status) __attribute__((alias("fstat")));
int fstatat64(int folder, const char *path, struct stat *status, int flags)
    __attribute__((alias("fstatat")));

/* 2.36: the generator of libstdc++'s std::random_device. */
uint32_t arc4random(void) {
    uint32_t number;
    while (getentropy(&number, sizeof number) != 0) {
    }
    return number;
}

/* 2.38: <stdlib.h> and <stdio.h> of that version map their functions to these. The difference: 0b1
 * is a number too. */
#define BEFORE_C23(type, name, text)                                                               \
    extern type before_c23_##name(const text *string, text **end, int base) __asm__(#name)         \
        __attribute__((visibility("default")));                                                    \
    type __isoc23_##name(const text *string, text **end, int base);                                \
    type __isoc23_##name(const text *string, text **end, int base) {                               \
        return before_c23_##name(string, end, base);                                               \
    }
BEFORE_C23(long, strtol, char)
BEFORE_C23(long long, strtoll, char)
BEFORE_C23(unsigned long, strtoul, char)
BEFORE_C23(unsigned long long, strtoull, char)
BEFORE_C23(intmax_t, strtoimax, char)
BEFORE_C23(uintmax_t, strtoumax, char)
BEFORE_C23(long, wcstol, wchar_t)
BEFORE_C23(long long, wcstoll, wchar_t)
BEFORE_C23(unsigned long, wcstoul, wchar_t)
BEFORE_C23(unsigned long long, wcstoull, wchar_t)

int __isoc99_vsscanf(const char *string, const char *format, va_list values)
    __attribute__((visibility("default")));
int __isoc23_vsscanf(const char *string, const char *format, va_list values) {
    return __isoc99_vsscanf(string, format, values);
}
int __isoc23_sscanf(const char *string, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int found = __isoc99_vsscanf(string, format, values);
    va_end(values);
    return found;
}

/* 2.34. Since then, the C library runs a program's constructors. Before, the program ran them, by a
 * function that it passed. With such a function, later libraries leave them to the program too. */
typedef void Constructor(int count, char **arguments, char **environment);
extern Constructor *__preinit_array_start[] __attribute__((weak));
extern Constructor *__preinit_array_end[] __attribute__((weak));
extern Constructor *__init_array_start[] __attribute__((weak));
extern Constructor *__init_array_end[] __attribute__((weak));
extern void _init(void);

static void construct(int count, char **arguments, char **environment) {
    for (Constructor **next = __preinit_array_start; next != __preinit_array_end; next++) {
        (*next)(count, arguments, environment);
    }
    _init();
    for (Constructor **next = __init_array_start; next != __init_array_end; next++) {
        (*next)(count, arguments, environment);
    }
}

#ifdef __x86_64__
__asm__(".symver start_main, __libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver start_main, __libc_start_main@GLIBC_2.17");
#endif
typedef int Main(int count, char **arguments, char **environment);
extern int start_main(Main *program, int count, char **arguments, Constructor *first,
                      void (*last)(void), void (*linker_last)(void), void *end_of_stack)
    __attribute__((visibility("default")));

int __libc_start_main(Main *program, int count, char **arguments, Constructor *first,
                      void (*last)(void), void (*linker_last)(void), void *end_of_stack) {
    return start_main(program, count, arguments, first != NULL ? first : construct, last,
                      linker_last, end_of_stack);
}
