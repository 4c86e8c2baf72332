#pragma once

#include "observe/error.h"

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

// A required argument, checked at the door and never again inside.
#define EMM_REQUIRE(argument)                                                                      \
    if (!(argument)) {                                                                             \
        return ::emm::api::missing(__func__, #argument);                                           \
    }
