// Linked into each program and library of tools/coverage's build. gcov writes what a module has
// counted when that module is finalized. These ends finalize nothing, so they write it first:
// _exit, _Exit and abort. A process that ends by SIGKILL or by a fault does not count.
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// A module's libgcov knows that module alone, and version scripts hide it. So each module enters
// its function in a page that has the same address in every process.
__attribute__((visibility("hidden"))) extern void __gcov_dump(void); // each module has its own
typedef void (*Dump)(void);
enum { most = 512 };
static _Atomic(Dump) *const dumps = (_Atomic(Dump) *)(uintptr_t)0x5e0000000000;

// 101 and `leave`: before the first function of a module is counted, after the last.
__attribute__((constructor(101))) static void enter(void) {
    // Fails in all modules but the first: they share its page.
    mmap((void *)(uintptr_t)dumps, most * sizeof *dumps, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    for (int i = 0; i < most; ++i) {
        Dump none = NULL;
        if (atomic_compare_exchange_strong(&dumps[i], &none, __gcov_dump)) {
            return;
        }
    }
}

__attribute__((destructor(101))) static void leave(void) {
    for (int i = 0; i < most; ++i) {
        Dump own = __gcov_dump;
        atomic_compare_exchange_strong(&dumps[i], &own, NULL);
    }
}

static void dump_all(void) {
    for (int i = 0; i < most; ++i) {
        const Dump dump = atomic_load(&dumps[i]);
        if (dump) {
            dump();
        }
    }
}

#define ENDS __attribute__((visibility("hidden"), noreturn))

ENDS void _exit(int status) {
    dump_all();
    for (;;) {
        syscall(SYS_exit_group, status);
    }
}

ENDS void _Exit(int status) {
    _exit(status);
}

ENDS void abort(void) {
    dump_all();
    signal(SIGABRT, SIG_DFL);
    for (;;) {
        syscall(SYS_tgkill, getpid(), gettid(), SIGABRT);
    }
}
