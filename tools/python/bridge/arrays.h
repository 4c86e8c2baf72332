// Which arrays lie in memory of emm's. NumPy does not tell realloc how large an array is, and what
// it tells free comes from the shape; and a header before the array cannot be relied on, because a
// reset takes pinned memory back while the array has still to be freed.
#pragma once

#include <emm/emm.h>

#include <mutex>
#include <unordered_map>

namespace emm::bridge {

class Arrays {
public:
    struct Entry {
        emm_memory *memory = nullptr;
        size_t room = 0;   // bytes that the array has
        bool lost = false; // to a reset: its address has come back for another array
    };

    // The one of this process. A forked child has a copy that it can use.
    static Arrays &of_process();
    static void survive_forks();

    // False if there is no memory to remember it in.
    bool enter(void *array, Entry entry) noexcept;
    // Without `memory`: it is not here.
    Entry find(void *array);
    Entry remove(void *array);

private:
    using Map = std::unordered_multimap<void *, Entry>;

    // One of the entries for `array`, one that is `lost` or not for choice. The lock is held.
    Map::iterator choose(void *array, bool lost);

    std::mutex mutex_;
    Map map_;
};

} // namespace emm::bridge
