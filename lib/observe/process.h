// The process: what lives to its end, and what has become of it, which every entry
// asks before a lock and before a static.
//
// A child of fork has one thread, and what the parent's others held stays held there for ever. So
// a child of a process that has loaded the driver, which no child can use, is told so at every
// call; and so is one that was forked while a call was under way, whose locks cannot be trusted.
// Where there was neither, nothing is held, and the child goes on as if it had begun by itself.
#pragma once

#include <emm/status.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace emm::observe {

// Bits of the word. Below them it counts the calls under way.
inline constexpr uint32_t process_forked = 1u << 31;
inline constexpr uint32_t process_shut_down = 1u << 30;
inline constexpr uint32_t process_has_driver = 1u << 29;

inline constinit std::atomic<uint32_t> process_state{0};

// The word that a child begins with, from its parent's at the moment of the fork.
constexpr uint32_t state_of_child(uint32_t parent) {
    return (parent & ~process_shut_down) == 0 ? parent : process_forked;
}

inline bool is_forked_child() noexcept {
    return (process_state.load(std::memory_order_relaxed) & process_forked) != 0;
}

// What a child does that is not to go on: set as libemm is loaded, by what has more to mark.
using ChildHandler = void (*)();
inline constinit ChildHandler mark_forked_child = nullptr;

// The fork handlers are there from the loading of libemm on. False: there was no memory for them
// then, and there is none now.
bool register_fork_handlers() noexcept;

// EMM_E_FORKED, described.
[[gnu::cold]] emm_status refuse_forked_child() noexcept;

// A call under way that may take a lock or make a static, for a scope. What needs the driver needs
// no such count once that is loaded.
class ProcessCall {
public:
    ProcessCall() noexcept : entered_(!is_forked_child()) {
        if (entered_) {
            process_state.fetch_add(1);
        }
    }
    // In a child that was forked from within the call, nothing is counted.
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

// The file that the process runs, as the kernel knows it, and its name; "" if that cannot be had.
// Throw std::bad_alloc.
std::string program_path();
std::string program_name();

// The process runs with more rights than its caller has (set-user-id, capabilities).
bool elevated() noexcept;

// A static object that is never destroyed, because calls may come while the process ends, and that
// lies in no memory of its own, so that making it needs none: functions that must not throw use it.
template <class Type> union Immortal {
    Type value;
    Immortal() : value() {}
    ~Immortal() {}
};

// The one of its type, made at its first use.
template <class Type> Type &immortal() {
    static Immortal<Type> the_one;
    return the_one.value;
}

} // namespace emm::observe
