// While a thread looks for whole blocks, free memory is not kept in depots.
#pragma once

#include "cache/thread_caches.h"

namespace emm::pool {

// The lock is held when it begins. It has it when it ends, whatever has ended it.
class Search {
public:
    Search(Lock &lock, ThreadCaches &caches) : lock_(lock), caches_(caches) {
        caches_.begin_search();
    }
    ~Search() {
        if (!lock_.owns_lock()) {
            lock_.lock();
        }
        caches_.end_search();
    }
    Search(const Search &) = delete;
    Search &operator=(const Search &) = delete;

private:
    Lock &lock_;
    ThreadCaches &caches_;
};

} // namespace emm::pool
