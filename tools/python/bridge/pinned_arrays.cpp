#include "pinned_arrays.h"

#include "interpreter.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <pthread.h>

namespace emm::bridge {
namespace {

constexpr size_t page = 4096, alignment = 64;
constexpr size_t slab_size = 256 << 10, largest_shared = 16 << 10;

// An array has no device: work of any context may use its memory.
constexpr uint32_t pin_flags = EMM_HOST_PORTABLE;

size_t round_up(size_t size, size_t granule) {
    return (size + granule - 1) / granule * granule;
}

// A reset, the end of the context or a fork leave memory that is no longer pinned.
bool is_pinned(emm_memory *memory) noexcept {
    emm_memory_info info = {};
    info.struct_size = sizeof info;
    return emm_memory_get_info(memory, &info) >= EMM_OK && info.state == EMM_MEMORY_LIVE;
}

// Never destroyed, because arrays are freed while the process ends. Made, with its fork handlers,
// as the library is loaded: a child that was forked during the first call could not wait for that
// call's end.
union Lasting {
    PinnedArrays arrays;
    Lasting() : arrays() {}
    ~Lasting() {}
} the;

} // namespace

PinnedArrays &PinnedArrays::of_process() {
    return the.arrays;
}

void PinnedArrays::survive_forks() {
    pthread_atfork([] { the.arrays.mutex_.lock(); }, [] { the.arrays.mutex_.unlock(); },
                   [] { the.arrays.mutex_.unlock(); });
}

emm_status PinnedArrays::make_slab(emm_context *context, size_t size, Slab **ret_slab) {
    auto *slab = new (std::nothrow) Slab{};
    void *begin = slab ? std::aligned_alloc(page, size) : nullptr;
    emm_status status = EMM_E_OUT_OF_HOST_MEMORY;
    if (begin) {
        status = without_lock([=] {
            return emm_memory_pin(context, begin, size, pin_flags, begin, &std::free,
                                  &slab->memory);
        });
    }
    if (status < EMM_OK) {
        std::free(begin);
        delete slab;
        return status;
    }
    slab->begin = static_cast<char *>(begin);
    *ret_slab = slab;
    return EMM_OK;
}

// The handle's finalizer frees the memory once it is unpinned.
void PinnedArrays::end(Slab *slab) {
    if (slab) {
        without_lock([slab] { return emm_memory_release(slab->memory); });
        delete slab;
    }
}

void *PinnedArrays::enter(Slab &slab, size_t room) {
    void *const array = slab.begin + slab.used;
    places_.emplace(array, Place{&slab, room});
    slab.used += room;
    ++slab.users;
    return array;
}

void *PinnedArrays::take_from_open(emm_context *context, size_t room) {
    const auto found = open_.find(context);
    if (found == open_.end() || slab_size - found->second->used < room ||
        !is_pinned(found->second->memory)) {
        return nullptr;
    }
    return enter(*found->second, room);
}

PinnedArrays::Slab *PinnedArrays::leave(Slab *slab) noexcept {
    return --slab->users == 0 ? slab : nullptr;
}

PinnedArrays::Slab *PinnedArrays::close(emm_context *context) noexcept {
    const auto found = open_.find(context);
    if (found == open_.end()) {
        return nullptr;
    }
    Slab *const slab = found->second;
    open_.erase(found);
    return leave(slab);
}

// Pinning may ask the application to give memory back, arrays among it, so no lock is held there.
emm_status PinnedArrays::make(emm_context *context, size_t size, void **ret_array) {
    const bool shared = size <= largest_shared;
    const size_t room = round_up(std::max<size_t>(size, 1), shared ? alignment : page);
    Slab *slab = nullptr, *closed = nullptr;
    void *array = nullptr;
    try {
        if (shared) {
            const std::lock_guard lock(mutex_);
            array = take_from_open(context, room);
        }
        if (!array) {
            const emm_status status = make_slab(context, shared ? slab_size : room, &slab);
            if (status < EMM_OK) {
                return status;
            }
            const std::lock_guard lock(mutex_);
            array = enter(*slab, room);
            if (shared) {
                closed = close(context);
                open_.emplace(context, slab);
                ++slab->users;
            }
        }
    } catch (const std::bad_alloc &) {
        if (!array) {
            end(slab);
            return EMM_E_OUT_OF_HOST_MEMORY;
        } // otherwise the slab is valid, but not open
    }
    end(closed);
    *ret_array = array;
    return EMM_OK;
}

size_t PinnedArrays::room_of(void *array) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(array);
    return found == places_.end() ? 0 : found->second.room;
}

bool PinnedArrays::drop(void *array) {
    Slab *unused = nullptr;
    {
        const std::lock_guard lock(mutex_);
        const auto found = places_.find(array);
        if (found == places_.end()) {
            return false;
        }
        unused = leave(found->second.slab);
        places_.erase(found);
    }
    end(unused);
    return true;
}

} // namespace emm::bridge
