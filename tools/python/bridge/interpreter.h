// Work without the interpreter's lock, for functions that may be called with it.
#pragma once

#include "bridge.h"

namespace emm::bridge {

extern PythonFunctions python; // NULL until they are set

// PyGILState_Check is not asked: it always says yes once a subinterpreter was made.
inline bool holds_lock() {
    void *const own = python.own_thread ? python.own_thread() : nullptr;
    return own && own == python.current_thread();
}

// Work that may wait for a thread that needs the lock: one in a plugin, a finalizer or another
// callback that is written in Python. While the interpreter ends, restore_thread() may end the
// thread; so neither a destructor calls it nor may a caller be noexcept.
template <class Work> auto without_lock(Work work) {
    if (!holds_lock()) {
        return work();
    }
    void *const thread = python.save_thread();
    const auto result = work();
    python.restore_thread(thread);
    return result;
}

} // namespace emm::bridge
