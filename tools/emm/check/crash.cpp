#include "check/crash.h"

#include <csignal>
#include <cstring>
#include <unistd.h>

namespace emm::tool::check {
namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction earlier[sizeof signals / sizeof *signals];
int report_to = -1;
thread_local const char *slot = nullptr;

// In a signal handler: no allocation, and one line in one write.
void write_slot() {
    char line[96] = "{\"inside\": \"";
    const size_t room = sizeof line - std::strlen(line) - sizeof "\"}\n";
    std::strncat(line, slot, room);
    std::strcat(line, "\"}\n");
    static_cast<void>(!write(report_to, line, std::strlen(line)));
}

// The handler from before, a sanitizer's or the default, gets the signal when this one returns.
void on_crash(int number) {
    if (slot) {
        write_slot();
    }
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (signals[i] == number) {
            sigaction(number, &earlier[i], nullptr);
        }
    }
    if (number == SIGABRT) {
        raise(number);
    }
}

} // namespace

InSlot::InSlot(const char *name) : outer_(slot) {
    slot = name;
}

InSlot::~InSlot() {
    slot = outer_;
}

void report_crashes(int descriptor) {
    // An overflow of the stack leaves no room on it. A sanitizer has a stack of its own for that.
    static char room[64 << 10];
    stack_t stack = {};
    if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE)) {
        stack = {room, 0, sizeof room};
        sigaltstack(&stack, nullptr);
    }
    report_to = descriptor;
    struct sigaction action = {};
    action.sa_handler = &on_crash;
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaction(signals[i], &action, &earlier[i]);
    }
}

} // namespace emm::tool::check
