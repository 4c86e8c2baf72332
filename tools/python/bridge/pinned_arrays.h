// NumPy's arrays in pinned memory. emm pins ordinary memory of the process: a reset, the end of its
// context or of emm unpin it, and every array stays readable and writable. Memory that the driver
// allocates would be unmapped then.
//
// An array of up to 16 KiB shares a slab with other arrays; a larger array has a slab to itself. No
// part of a slab is given out twice, because the device may still use an array that was freed. A
// slab ends with unpinning, which waits for that use.
#pragma once

#include <emm/emm.h>

#include <map>
#include <mutex>
#include <unordered_map>

namespace emm::bridge {

class PinnedArrays {
public:
    // The arrays of this process. A forked child has a copy that it can use.
    static PinnedArrays &of_process();
    [[gnu::constructor]] static void survive_forks();

    // An array of `size` bytes, at most `largest`, aligned to 64.
    emm_status make(emm_context *context, size_t size, void **ret_array);

    // The bytes of an array; 0: not an array of this table. NumPy does not tell realloc the size of
    // an array, and the size that it tells free comes from the shape.
    size_t room_of(void *array) noexcept;

    // False: not an array of this table.
    bool drop(void *array);

    static constexpr size_t largest = size_t(1) << 62;

private:
    struct Slab {
        emm_memory *memory;
        char *begin;
        size_t used = 0;  // bytes given out, from the beginning on
        size_t users = 0; // live arrays, and one more while open
    };
    struct Place {
        Slab *slab;
        size_t room;
    };

    static emm_status make_slab(emm_context *context, size_t size, Slab **ret_slab);
    static void end(Slab *slab);

    // Called with the lock held. The caller passes an unused slab to end(), without the lock.
    void *take_from_open(emm_context *context, size_t room);
    void *enter(Slab &slab, size_t room);
    Slab *close(emm_context *context) noexcept;
    static Slab *leave(Slab *slab) noexcept;

    std::mutex mutex_;
    std::unordered_map<void *, Place> places_;
    std::map<emm_context *, Slab *> open_; // where small arrays come from
};

} // namespace emm::bridge
