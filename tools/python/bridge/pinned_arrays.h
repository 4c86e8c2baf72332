// NumPy's arrays in pinned memory. It is ordinary memory of the process that emm pins: a reset, the
// end of its context or of emm unpin it, and every array can be read and written as before. Memory
// that the driver allocates would be unmapped then.
//
// An array of up to 16 KiB shares a slab with other arrays, a larger one has a slab to itself.
// Nothing in a slab is given out twice, because the device may still be at work on an array that
// was freed: unpinning, which a slab ends with, waits for that.
#pragma once

#include <emm/emm.h>

#include <map>
#include <mutex>
#include <unordered_map>

namespace emm::bridge {

class PinnedArrays {
public:
    // The one of this process. A forked child has a copy that it can use.
    static PinnedArrays &of_process();
    [[gnu::constructor]] static void survive_forks();

    // An array of `size` bytes, at most `largest`, aligned to 64.
    emm_status make(emm_context *context, size_t size, void **ret_array) noexcept;

    // The bytes that an array has, 0 if it is none of these: NumPy does not tell realloc how large
    // an array is, and what it tells free comes from the shape.
    size_t room_of(void *array) noexcept;

    // False if it is none of these.
    bool drop(void *array) noexcept;

    static constexpr size_t largest = size_t(1) << 62;

private:
    struct Slab {
        emm_memory *memory;
        char *begin;
        size_t used = 0;  // bytes that were given out, from the beginning on
        size_t users = 0; // live arrays, and one if it is open
    };
    struct Place {
        Slab *slab;
        size_t room;
    };

    static emm_status make_slab(emm_context *context, size_t size, Slab **ret_slab) noexcept;
    static void end(Slab *slab) noexcept;

    // With the lock held. What nothing uses any more is the caller's to end(), without it.
    void *take_from_open(emm_context *context, size_t room);
    void *enter(Slab &slab, size_t room);
    Slab *close(emm_context *context) noexcept;
    static Slab *leave(Slab *slab) noexcept;

    std::mutex mutex_;
    std::unordered_map<void *, Place> places_;
    std::map<emm_context *, Slab *> open_; // where small arrays come from
};

} // namespace emm::bridge
