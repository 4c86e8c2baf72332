#include "arrays.h"

#include <new>
#include <pthread.h>

namespace emm::bridge {

namespace {

// Never destroyed, for arrays are freed while the process ends. Made, with its fork handlers, as
// the library is loaded: a child that was forked during the first call could not wait for its end.
union Lasting {
    Arrays arrays;
    Lasting() : arrays() {}
    ~Lasting() {}
} the;

} // namespace

Arrays &Arrays::of_process() {
    return the.arrays;
}

void Arrays::survive_forks() {
    pthread_atfork([] { the.arrays.mutex_.lock(); }, [] { the.arrays.mutex_.unlock(); },
                   [] { the.arrays.mutex_.unlock(); });
}

namespace {

[[gnu::constructor]] void survive_forks() {
    Arrays::survive_forks();
}

} // namespace

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
