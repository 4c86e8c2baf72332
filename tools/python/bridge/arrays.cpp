#include "arrays.h"

#include <new>
#include <pthread.h>

namespace emm::bridge {

Arrays &Arrays::of_process() {
    static Arrays *const the_arrays = [] {
        auto *const arrays = new Arrays;
        pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                       [] { of_process().mutex_.unlock(); });
        return arrays;
    }();
    return *the_arrays;
}

bool Arrays::enter(void *array, Entry entry) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        const auto [first, last] = map_.equal_range(array);
        for (auto it = first; it != last; ++it) {
            it->second.lost = true;
        }
        map_.emplace(array, entry);
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

Arrays::Map::iterator Arrays::choose(void *array, bool lost) {
    const auto [first, last] = map_.equal_range(array);
    for (auto it = first; it != last; ++it) {
        if (it->second.lost == lost) {
            return it;
        }
    }
    return first == last ? map_.end() : first;
}

Arrays::Entry Arrays::find(void *array) {
    const std::lock_guard lock(mutex_);
    const auto it = choose(array, false);
    return it == map_.end() ? Entry{} : it->second;
}

// Of two arrays at one address it cannot be told which one is freed: to let go of the lost one
// first frees nothing that is in use.
Arrays::Entry Arrays::remove(void *array) {
    const std::lock_guard lock(mutex_);
    const auto it = choose(array, true);
    if (it == map_.end()) {
        return {};
    }
    const Entry entry = it->second;
    map_.erase(it);
    return entry;
}

} // namespace emm::bridge
