// The state of the process, and objects that live to its end. Every entry checks the state before
// any lock and before any static.
//
// A forked child has one thread, and locks held by the parent's other threads stay held there for
// ever. So two kinds of children are refused at every call: those of a process that has loaded the
// driver, which no child can use; and those forked while a call was under way, whose locks cannot
// be trusted. In other children nothing is held, and the child goes on like a new process.
#pragma once

#include <emm/status.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <string>

namespace emm::observe {

// Bits of the state word. The bits below count the calls under way.
inline constexpr uint32_t process_forked = 1u << 31;
inline constexpr uint32_t process_shut_down = 1u << 30;
inline constexpr uint32_t process_has_driver = 1u << 29;

inline constinit std::atomic<uint32_t> process_state{0};

// The state word of a child, from the parent's at the moment of the fork.
constexpr uint32_t state_of_child(uint32_t parent) {
    return (parent & ~process_shut_down) == 0 ? parent : process_forked;
}

inline bool is_forked_child() noexcept {
    return (process_state.load(std::memory_order_relaxed) & process_forked) != 0;
}

// Extra work for a child that must not use emm. Set when libemm is loaded, by the layer that has
// more to mark.
using ChildHandler = void (*)();
inline constinit ChildHandler mark_forked_child = nullptr;

// Registered when libemm is loaded. False: there was no memory for the fork handlers then, and
// there is none now.
bool register_fork_handlers() noexcept;

// EMM_E_FORKED, described.
[[gnu::cold]] emm_status refuse_forked_child() noexcept;

// Counts, for a scope, a call that may take a lock or initialize a static. Once the driver is
// loaded, calls that need the driver need no such count.
class ProcessCall {
public:
    ProcessCall() noexcept : entered_(!is_forked_child()) {
        if (entered_) {
            process_state.fetch_add(1);
        }
    }
    // If the call itself forked, the child counts nothing.
    ~ProcessCall() {
        if (entered_ && !is_forked_child()) {
            process_state.fetch_sub(1);
        }
    }
    ProcessCall(const ProcessCall &) = delete;
    ProcessCall &operator=(const ProcessCall &) = delete;
    bool entered() const { return entered_; } // false: this is a forked child

private:
    const bool entered_;
};

// The path of the file that the process runs, as the kernel knows it, and its name; "" if unknown.
// Throw std::bad_alloc.
std::string program_path();
std::string program_name();

// Whether the process runs with more rights than its caller has (set-user-id, capabilities).
bool elevated() noexcept;

// The single object of its type, made at its first use. It is never destroyed, because calls may
// come while the process ends. Making it needs no heap, because it lies in static memory and has no
// destructor to register: functions that must not throw use it.
template <class Type> Type &immortal() {
    alignas(Type) static unsigned char place[sizeof(Type)];
    [[maybe_unused]] static const Type *const made = new (place) Type();
    return *std::launder(reinterpret_cast<Type *>(place));
}

} // namespace emm::observe
