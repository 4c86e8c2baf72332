#pragma once

#include "observe/error.h"
#include "observe/process.h"

#include <emm/emm.h>
#include <new>
#include <string>

namespace emm::api {

inline emm_status missing(const char *function, const char *argument) noexcept {
    return observe::fail(EMM_E_INVALID_VALUE, 0,
                         [=] { return std::string(function) + ": " + argument + " is NULL"; });
}

// Runs what may need memory of its own: no exception crosses the C boundary.
template <class Function> emm_status guarded(Function function) noexcept {
    try {
        return function();
    } catch (const std::bad_alloc &) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                             emm_status_text(EMM_E_OUT_OF_HOST_MEMORY));
    } catch (const std::exception &error) {
        return observe::fail(EMM_E_PLUGIN_EXCEPTION, 0, error.what());
    }
}

} // namespace emm::api

// First in every entry that is not listed here: a forked child is answered before any lock, and
// before the guard of any static. The raw calls of the fast path (emm_memalloc, emm_memfree,
// emm_memhostalloc, emm_memhostfree, emm_context_current) learn it from the context's gate. These
// go on in a child, because they look at their arguments or their thread alone: emm_last_error,
// emm_version, emm_status_text, emm_array_validate, emm_array_get_layout.
#define EMM_REFUSE_CHILD()                                                                         \
    if (::emm::observe::is_forked_child()) [[unlikely]] {                                          \
        return ::emm::observe::refuse_forked_child();                                              \
    }

// The same for an entry that needs no driver, and may take a lock or make a static before one is
// loaded: counted, so that a child forked meanwhile knows.
#define EMM_COUNT_CALL()                                                                           \
    const ::emm::observe::ProcessCall counted_call;                                                \
    if (!counted_call.entered()) [[unlikely]] {                                                    \
        return ::emm::observe::refuse_forked_child();                                              \
    }

// A required argument, checked at the door and never again inside.
#define EMM_REQUIRE(argument)                                                                      \
    if (!(argument)) {                                                                             \
        return ::emm::api::missing(__func__, #argument);                                           \
    }
