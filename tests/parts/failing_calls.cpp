#include "failing_calls.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <sys/syscall.h>

namespace failing_calls {
namespace {

struct Row {
    Kind kind;
    const char *name;
    long result;
    int error;
};

// --- counting ------------------------------------------------------------------------------------

constinit std::atomic<bool> armed{false};
constinit std::atomic<unsigned> seen{0}, failed{0};
constinit std::atomic<const Row *> last{nullptr};
constinit std::atomic<const Row *> failed_rows[16]; // each once
constinit std::atomic<void *> last_caller{nullptr};
Plan planned;
bool (*is_concerned_now)(const void *caller) = nullptr;

bool is_due(const Row &row) {
    if (row.kind != planned.kind || (planned.name && std::strcmp(planned.name, row.name) != 0)) {
        return false;
    }
    const unsigned number = seen.fetch_add(1) + 1;
    return number == planned.first || number == planned.second ||
           (planned.onwards && number > planned.first);
}

void note(const Row &row, void *caller) {
    failed++;
    last = &row;
    last_caller = caller;
    for (std::atomic<const Row *> &place : failed_rows) {
        const Row *found = nullptr;
        if (place.compare_exchange_strong(found, &row) || found == &row) {
            return;
        }
    }
}

template <class Predicate> bool any_failed(Predicate holds) {
    return std::any_of(std::begin(failed_rows), std::end(failed_rows),
                       [&](const Row *row) { return row && holds(*row); });
}

// A check on the way may be the first use of a library's thread-local storage, for which the C
// library takes memory.
bool fails(const Row &row, void *caller) {
    thread_local bool asks = false;
    if (!armed.load(std::memory_order_acquire) || asks) {
        return false;
    }
    asks = true;
    const bool due = is_concerned_now(caller) && is_due(row);
    asks = false;
    if (due) {
        note(row, caller);
        errno = row.error ? row.error : errno;
    }
    return due;
}

// --- in front of the C library -------------------------------------------------------------------

// Integers and addresses are passed alike, also where a function takes any number of them.
using Call = long (*)(long, long, long, long, long, long, long);

// For dlsym itself takes memory.
#ifdef EMM_TEST_FAILS_MALLOC
extern "C" {
long __libc_malloc(long, long, long, long, long, long, long);
long __libc_calloc(long, long, long, long, long, long, long);
long __libc_realloc(long, long, long, long, long, long, long);
long __libc_memalign(long, long, long, long, long, long, long);
}
Call find_malloc(const char *name) {
    return name[0] == 'm'   ? &__libc_malloc
           : name[0] == 'c' ? &__libc_calloc
           : name[0] == 'r' ? &__libc_realloc
                            : &__libc_memalign;
}
#else
Call find_malloc(const char *) {
    return nullptr;
}
#endif

Call find(const Row &row) {
    return row.kind == Kind::memory ? find_malloc(row.name)
                                    : reinterpret_cast<Call>(dlsym(RTLD_NEXT, row.name));
}

// Calls of syscall() fail where a sandbox forbids them; others cannot fail.
bool can_fail(const Row &row, long first) {
    return std::strcmp(row.name, "syscall") != 0 || first == SYS_membarrier ||
           first == SYS_get_mempolicy || first == SYS_set_mempolicy;
}

} // namespace

#define FAILING_CALL(of, called, answer, number)                                                   \
    extern "C" __attribute__((visibility("default"))) long in_front_of_##called(                   \
        long a, long b, long c, long d, long e, long f, long g) __asm__(#called);                  \
    long in_front_of_##called(long a, long b, long c, long d, long e, long f, long g) {            \
        static constexpr Row row = {Kind::of, #called, answer, number};                            \
        static constinit std::atomic<Call> found{nullptr};                                         \
        if (can_fail(row, a) && fails(row, __builtin_return_address(0))) {                         \
            return row.result;                                                                     \
        }                                                                                          \
        Call real = found.load(std::memory_order_relaxed);                                         \
        if (!real) {                                                                               \
            found = real = find(row);                                                              \
        }                                                                                          \
        return real(a, b, c, d, e, f, g);                                                          \
    }
#include "failing_calls.def"
#undef FAILING_CALL

// --- plans ---------------------------------------------------------------------------------------

void arm(const Plan &plan, bool (*is_concerned)(const void *caller)) {
    planned = plan;
    is_concerned_now = is_concerned;
    seen = failed = 0;
    last = nullptr;
    for (std::atomic<const Row *> &place : failed_rows) {
        place = nullptr;
    }
    armed.store(true, std::memory_order_release);
}

unsigned failures() {
    return failed;
}

void disarm() {
    armed = false;
}

std::string last_failure() {
    const Row *const row = last;
    if (!row) {
        return "";
    }
    Dl_info found = {};
    char place[256] = "";
    if (dladdr(last_caller, &found) && found.dli_fname) {
        std::snprintf(
            place, sizeof place, ", from %s+0x%zx", found.dli_fname,
            size_t(static_cast<char *>(last_caller.load()) - static_cast<char *>(found.dli_fbase)));
    }
    return std::string(row->name) + place;
}

bool has_failed(const char *name) {
    return any_failed([&](const Row &row) { return std::strcmp(row.name, name) == 0; });
}

bool tells_reason(const std::string &text) {
    return any_failed([&](const Row &row) {
        const int error = row.error ? row.error : static_cast<int>(row.result);
        return text.find(std::strerror(error)) != std::string::npos;
    });
}

const char *name_of(Kind kind, unsigned row) {
    static constexpr Row rows[] = {
#define FAILING_CALL(of, called, answer, number) {Kind::of, #called, answer, number},
#include "failing_calls.def"
#undef FAILING_CALL
    };
    for (const Row &each : rows) {
        if (each.kind == kind && row-- == 0) {
            return each.name;
        }
    }
    return nullptr;
}

} // namespace failing_calls
