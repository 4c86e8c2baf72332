#include "observe/callers/walk.h"

#include "catch.h"

#include <alloca.h>
#include <cstdlib>
#include <sys/mman.h>
#include <thread>
#include <ucontext.h>
#include <unwind.h>
#include <vector>

using namespace emm::observe;

namespace {

using Addresses = std::vector<uintptr_t>;

struct Backtrace {
    uintptr_t behind; // the stack pointer of the frame that the walk began in
    Addresses &addresses;
    size_t count;
};

_Unwind_Reason_Code add_frame(_Unwind_Context *context, void *state) {
    Backtrace &trace = *static_cast<Backtrace *>(state);
    // libgcc tells the CFA of the frame called from here.
    const uintptr_t address = _Unwind_GetIP(context);
    if (_Unwind_GetCFA(context) <= trace.behind || address == 0) {
        return _URC_NO_REASON;
    }
    if (trace.count == trace.addresses.size()) {
        return _URC_END_OF_STACK;
    }
    trace.addresses[trace.count++] = address;
    return _URC_NO_REASON;
}

size_t walk_of_libgcc(uintptr_t behind, Addresses &ret_addresses) {
    Backtrace trace = {behind, ret_addresses, 0};
    _Unwind_Backtrace(&add_frame, &trace);
    return trace.count;
}

// Both ways to tell the callers of this function.
struct Told {
    Addresses quickly, slowly;
};

[[gnu::noinline]] Addresses tell_callers_quickly() {
    Addresses told(64);
    told.resize(walk(frame_here(), told.data(), told.size()));
    return told;
}

[[gnu::noinline]] Told tell_callers() {
    Told told;
    told.quickly.resize(200);
    told.slowly.resize(200);
    const Frame frame = frame_here();
    told.quickly.resize(walk(frame, told.quickly.data(), told.quickly.size()));
    told.slowly.resize(walk_of_libgcc(frame.stack_pointer, told.slowly));
    return told;
}

// Writes `word` over the frame pointer that its caller has saved, as memory beyond a greenlet's
// first frame is overwritten, and walks.
[[gnu::noinline]] Addresses walk_over(uintptr_t word) {
    auto *const own_frame = static_cast<volatile uintptr_t *>(__builtin_frame_address(0));
    const uintptr_t saved = own_frame[0];
    own_frame[0] = word;
    Addresses found = tell_callers_quickly();
    own_frame[0] = saved;
    return found;
}

// Its frame is found by the frame pointer alone.
[[gnu::noinline]] Addresses walk_over_below(uintptr_t word, size_t bytes) {
    auto *const some = static_cast<volatile char *>(alloca(bytes));
    some[0] = 1;
    Addresses found = walk_over(word);
    some[0] = 2;
    return found;
}

// Frames of many forms, one within the other. `volatile` keeps the compiler from changing them.
[[gnu::noinline]] Told through_plain(int depth);

[[gnu::noinline]] Told through_alloca(int depth) {
    auto *const some = static_cast<volatile char *>(alloca(size_t(depth) * 40 + 1));
    some[0] = 1;
    Told told = through_plain(depth - 1);
    some[0] = 2;
    return told;
}

[[gnu::noinline]] Told through_aligned(int depth) {
    alignas(128) volatile char some[256];
    auto *const more = static_cast<volatile char *>(alloca(size_t(depth) * 24 + 1));
    some[0] = 1;
    more[0] = 1;
    Told told = through_alloca(depth);
    some[1] = 2;
    more[0] = some[0];
    return told;
}

[[gnu::noinline]] Told through_large(int depth) {
    volatile char some[100'000];
    some[0] = 1;
    Told told = through_aligned(depth);
    some[1] = some[0];
    return told;
}

Told told_by_comparison;
int compare(const void *, const void *) {
    told_by_comparison = through_alloca(1);
    return 0;
}

[[gnu::noinline]] Told through_library(int depth) {
    int numbers[] = {depth, depth};
    qsort(numbers, 2, sizeof *numbers, &compare); // a frame of the C library
    return told_by_comparison;
}

Told through_plain(int depth) {
    if (depth <= 0) {
        return tell_callers();
    }
    Told told = depth % 3 == 0   ? through_large(depth - 1)
                : depth % 3 == 1 ? through_aligned(depth - 1)
                                 : through_alloca(depth - 1);
    asm volatile("" ::: "memory");
    return told;
}

} // namespace

TEST_CASE("the walk finds the callers that libgcc finds, through frames of every form") {
    for (int depth = 1; depth < 12; depth++) {
        for (int again = 0; again < 3; again++) { // from the code, and from the table
            const Told told = through_plain(depth);
            INFO(depth);
            REQUIRE(told.quickly.size() > size_t(depth));
            CHECK(told.quickly == told.slowly);
        }
    }
}

TEST_CASE("the walk goes through frames of other libraries") {
    const Told told = through_library(2);
    REQUIRE(told.quickly.size() > 4);
    CHECK(told.quickly == told.slowly);
}

TEST_CASE("the walk ends where the thread began") {
    Told told;
    std::thread([&] { told = through_plain(3); }).join();
    REQUIRE(told.quickly.size() > 4);
    CHECK(told.quickly == told.slowly);
}

TEST_CASE("a frame pointer that leads out of the stack ends the walk") {
    const Addresses whole = walk_over_below(0, 64);
    REQUIRE(whole.size() <= 2); // the callers of tell_callers_quickly and walk_over
    const char local = 0;
    for (const uintptr_t word :
         {uintptr_t(1), uintptr_t(8), uintptr_t(0) - 8, uintptr_t(1) << 46, uintptr_t(1) << 63,
          uintptr_t(&walk_over_below), uintptr_t(&local) + (uintptr_t(1) << 32)}) {
        INFO(word);
        CHECK(walk_over_below(word, 64) == whole);
    }
}

TEST_CASE("no frame is told of a stack that is not the thread's own") {
    constexpr size_t bytes = 256 << 10;
    void *const stack =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stack != MAP_FAILED);
    static ucontext_t caller, coroutine;
    static Addresses told;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = bytes;
    coroutine.uc_link = &caller;
    makecontext(
        &coroutine, [] { told = tell_callers_quickly(); }, 0);
    CHECK(swapcontext(&caller, &coroutine) == 0);
    CHECK(told.empty());
    CHECK(through_plain(3).quickly.size() > 3);
    munmap(stack, bytes);
}

TEST_CASE("the walk tells no more than is asked for") {
    uintptr_t addresses[3] = {0, 0, 7};
    CHECK(walk(frame_here(), addresses, 2) == 2);
    CHECK(addresses[2] == 7);
    CHECK(walk(frame_here(), addresses, 0) == 0);
}

TEST_CASE("threads walk while the table is cleared") {
    std::atomic<bool> end{false};
    std::thread clearing([&] {
        while (!end) {
            unwind_rules.clear();
        }
    });
    bool same = true;
    for (int round = 0; round < 300; round++) {
        const Told told = through_plain(6);
        same = same && told.quickly == told.slowly;
    }
    end = true;
    clearing.join();
    CHECK(same);
}
