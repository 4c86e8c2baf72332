#pragma once

#include "core/record/this_thread.h"
#include "observe/error.h"
#include "observe/process.h"
#include "observe/text.h"

#include <emm/emm.h>
#include <new>
#include <string_view>
#include <type_traits>

namespace emm::api {

template <class... Arguments> constexpr bool are_given(Arguments... arguments) noexcept {
    return (static_cast<bool>(arguments) && ...);
}

// Refuses the first missing argument. `names`: the arguments as the call writes them.
template <class... Arguments>
[[gnu::noinline, gnu::cold]] emm_status missing(const char *function, std::string_view names,
                                                Arguments... arguments) noexcept {
    const char *what = "";
    const auto is_there = [&](const auto &argument) {
        what = std::is_pointer_v<std::decay_t<decltype(argument)>> ? "NULL" : "0";
        names.remove_prefix(argument ? names.find(", ") + 2 : 0);
        return argument != std::decay_t<decltype(argument)>{};
    };
    static_cast<void>((is_there(arguments) && ...));
    return observe::refuse("{}: {} is {}", function, names.substr(0, names.find(',')), what);
}

inline emm_status wrong_flags(const char *function, const char *expected, uint32_t flags) noexcept {
    return observe::refuse("{}: flags: expected {}, found {}", function, expected, flags);
}

// The flags of the calls that pin or register host memory.
constexpr uint32_t host_alloc_flags = EMM_HOST_PORTABLE | EMM_HOST_MAPPED | EMM_HOST_WRITE_COMBINED;
constexpr uint32_t pin_flags = EMM_HOST_PORTABLE | EMM_HOST_MAPPED | EMM_HOST_READ_ONLY;

// Runs a function that may need host memory: no exception crosses the C boundary, and a request to
// cancel the thread waits.
template <class Function> emm_status guarded(Function function) noexcept {
    const core::Uncancelled uncancelled;
    try {
        return function();
    } catch (const std::bad_alloc &) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                             emm_status_text(EMM_E_OUT_OF_HOST_MEMORY));
    } catch (const std::exception &error) {
        return observe::fail(EMM_E_PLUGIN_EXCEPTION, 0, "{}", observe::what_of(error));
    }
}

} // namespace emm::api

// Every entry begins with this macro, except those listed below: a forked child is answered before
// any lock, and before the guard of any static. The raw calls of the fast path (emm_memalloc,
// emm_memfree, emm_memhostalloc, emm_memhostfree, emm_context_current) learn of the fork from the
// context's state. Entries that look only at their arguments or their thread also work in a child:
// emm_last_error, emm_version, emm_status_text, emm_status_name, emm_array_validate,
// emm_array_get_layout, emm_ipc_is_name.
#define EMM_REFUSE_CHILD()                                                                         \
    if (::emm::observe::is_forked_child()) [[unlikely]] {                                          \
        return ::emm::observe::refuse_forked_child();                                              \
    }

// For the raw calls of the fast path, before they refuse their arguments.
#define EMM_REFUSE_CHILD_UNLESS(good)                                                              \
    if (!(good)) [[unlikely]] {                                                                    \
        EMM_REFUSE_CHILD();                                                                        \
    }

// Like EMM_REFUSE_CHILD, for an entry that needs no driver. Before a driver is loaded, such an
// entry may take a lock or initialize a static. So the call is counted, and a child forked
// meanwhile knows of the call.
#define EMM_COUNT_CALL()                                                                           \
    const ::emm::observe::ProcessCall counted_call;                                                \
    if (!counted_call.entered()) [[unlikely]] {                                                    \
        return ::emm::observe::refuse_forked_child();                                              \
    }

// Required arguments, checked at the door and never again inside.
#define EMM_REQUIRE(...)                                                                           \
    if (!::emm::api::are_given(__VA_ARGS__)) [[unlikely]] {                                        \
        return ::emm::api::missing(__func__, #__VA_ARGS__, __VA_ARGS__);                           \
    }

// EMM_REFUSE_CHILD and EMM_REQUIRE.
#define EMM_ENTER(...)                                                                             \
    EMM_REFUSE_CHILD();                                                                            \
    EMM_REQUIRE(__VA_ARGS__)

// Requires a struct to be filled; its size says which members the caller knows.
#define EMM_REQUIRE_SIZED(argument)                                                                \
    EMM_REQUIRE(argument)                                                                          \
    if ((argument)->struct_size == 0) {                                                            \
        return ::emm::observe::refuse(                                                             \
            "{}: " #argument "->struct_size: expected the size of the caller's struct, found 0",   \
            __func__);                                                                             \
    }

// Refuses flags that the call does not have.
#define EMM_REQUIRE_FLAGS(flags, allowed, names)                                                   \
    if (((flags) & ~(allowed)) != 0) {                                                             \
        return ::emm::api::wrong_flags(__func__, names, flags);                                    \
    }
#define EMM_REQUIRE_HOST_ALLOC_FLAGS(flags)                                                        \
    EMM_REQUIRE_FLAGS(flags, ::emm::api::host_alloc_flags,                                         \
                      "EMM_HOST_PORTABLE, _MAPPED and _WRITE_COMBINED (1, 2 and 4) at most")
#define EMM_REQUIRE_PIN_FLAGS(flags)                                                               \
    EMM_REQUIRE_FLAGS(flags, ::emm::api::pin_flags,                                                \
                      "EMM_HOST_PORTABLE, _MAPPED and _READ_ONLY (1, 2 and 8) at most")
#define EMM_REQUIRE_RANGE(host, size)                                                              \
    EMM_REQUIRE(host)                                                                              \
    if ((size) > UINTPTR_MAX - reinterpret_cast<uintptr_t>(host)) {                                \
        return ::emm::observe::refuse(                                                             \
            "{}: expected a range within the address space, found {} bytes at {}", __func__, size, \
            static_cast<const void *>(host));                                                      \
    }
#define EMM_REQUIRE_ATTACH_FLAG(flags)                                                             \
    if ((flags) != EMM_ATTACH_GLOBAL && (flags) != EMM_ATTACH_HOST) {                              \
        return ::emm::api::wrong_flags(__func__, "EMM_ATTACH_GLOBAL or _HOST (1 or 2)", flags);    \
    }

#define EMM_REQUIRE_STREAM(stream)                                                                 \
    if ((stream) == EMM_STREAM_UNORDERED) {                                                        \
        return ::emm::observe::refuse("{}: stream: expected a stream, found EMM_STREAM_UNORDERED", \
                                      __func__);                                                   \
    }
