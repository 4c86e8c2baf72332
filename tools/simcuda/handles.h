#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace simcuda {

// Handles as the driver makes them: the next new object gets the handle of a destroyed one. A query
// about a handle never touches the memory that it points to.
template <typename Object, typename Handle> class Handles {
public:
    // Reserves the addresses of all handles that may exist at a time, before the first. False: the
    // process lacks addresses.
    bool open() {
        void *const mapped = slots_ ? slots_
                                    : mmap(nullptr, capacity * sizeof(Slot), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        slots_ = mapped == MAP_FAILED ? nullptr : static_cast<Slot *>(mapped);
        return slots_ != nullptr;
    }
    Handle insert(Object *object) {
        const Handle handle = reserve();
        set(handle, object);
        return handle;
    }
    Handle reserve() {
        if (!free_.empty()) {
            Slot *slot = free_.back();
            free_.pop_back();
            return to_handle(slot);
        }
        return to_handle(slots_ + used_++);
    }
    void set(Handle handle, Object *object) { slot(handle)->object = object; }
    void erase(Handle handle) {
        slot(handle)->object = nullptr;
        free_.push_back(slot(handle));
    }
    // Destroys the object, and with it the handle.
    void destroy(Handle handle) {
        const std::unique_ptr<Object> object(find(handle));
        erase(handle);
    }
    // As destroy, permanently: no object made later gets this handle.
    void retire(Handle handle) {
        delete std::exchange(slot(handle)->object, nullptr);
        ++retired_;
    }
    size_t count() const { return used_ - free_.size() - retired_; }
    template <typename Predicate> bool any(Predicate predicate) const {
        return std::any_of(slots_, slots_ + used_, [&](const Slot &slot) {
            return slot.object && predicate(*slot.object);
        });
    }
    template <typename Predicate> std::vector<Handle> of(Predicate predicate) const {
        std::vector<Handle> handles;
        for (Slot *slot = slots_; slot < slots_ + used_; ++slot) {
            if (slot->object && predicate(*slot->object)) {
                handles.push_back(to_handle(slot));
            }
        }
        return handles;
    }
    Object *find(Handle handle) const { return was(handle) ? slot(handle)->object : nullptr; }

    // Whether an object ever had this handle.
    bool was(Handle handle) const {
        const auto address = (uintptr_t)handle, first = (uintptr_t)slots_;
        return slots_ && address >= first && address < first + used_ * sizeof(Slot) &&
               (address - first) % sizeof(Slot) == 0;
    }

private:
    struct Slot {
        Object *object;
        uint64_t padding;
    };
    static constexpr size_t capacity = size_t(1) << 24;

    static Slot *slot(Handle handle) { return (Slot *)(uintptr_t)handle; }
    static Handle to_handle(Slot *slot) { return (Handle)(uintptr_t)slot; }

    Slot *slots_ = nullptr;
    size_t used_ = 0, retired_ = 0;
    std::vector<Slot *> free_;
};

} // namespace simcuda
