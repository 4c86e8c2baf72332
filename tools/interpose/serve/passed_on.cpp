#include "passed_on.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>

namespace emm::run {

// --- arrays ------------------------------------------------------------------------------------

namespace {

// Elements are stored in squares with sides of so many elements.
struct Format {
    unsigned side = 1;
    uint64_t bytes = 0; // of a square; 0: not known
};

// Uses the numbers of CUarray_format, because older headers lack some names.
Format format_of(unsigned format, unsigned channels) {
    switch (format) {
    case 0x01: // integers and floats, of each channel
    case 0x08:
        return {1, channels};
    case 0x02:
    case 0x09:
    case 0x10:
        return {1, 2 * channels};
    case 0x03:
    case 0x0a:
    case 0x20:
        return {1, 4 * channels};
    case 0xc0: // normalized ones of 8 and 16 bits, of all channels
    case 0xc6:
        return {1, 1};
    case 0xc1:
    case 0xc3:
    case 0xc7:
    case 0xc9:
        return {1, 2};
    case 0xc2:
    case 0xc4:
    case 0xc8:
    case 0xca:
        return {1, 4};
    case 0xc5:
    case 0xcb:
        return {1, 8};
    case 0x91: // block-compressed: BC1 and BC4
    case 0x92:
    case 0x97:
    case 0x98:
        return {4, 8};
    case 0x93: // BC2, BC3, BC5, BC6H, BC7
    case 0x94:
    case 0x95:
    case 0x96:
    case 0x99:
    case 0x9a:
    case 0x9b:
    case 0x9c:
    case 0x9d:
    case 0x9e:
        return {4, 16};
    default:
        return {};
    }
}

uint64_t at_least_one(uint64_t extent) {
    return std::max<uint64_t>(extent, 1);
}

uint64_t squares(uint64_t extent, unsigned side) {
    return (at_least_one(extent) + side - 1) / side;
}

constexpr unsigned later_mapped = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

} // namespace

uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR &descriptor) {
    if (descriptor.Flags & later_mapped) {
        return 0;
    }
    const Format format = format_of(unsigned(descriptor.Format), descriptor.NumChannels);
    return squares(descriptor.Width, format.side) * squares(descriptor.Height, format.side) *
           at_least_one(descriptor.Depth) * format.bytes;
}

// Layers and the faces of a cube do not become fewer. The level of one element is the last.
uint64_t mipmapped_bytes(const CUDA_ARRAY3D_DESCRIPTOR &descriptor, unsigned levels) {
    const bool keeps_depth =
        (descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    CUDA_ARRAY3D_DESCRIPTOR level = descriptor;
    const uint64_t longest =
        std::max({level.Width, level.Height, keeps_depth ? 0 : level.Depth, size_t(1)});
    const unsigned made = std::clamp(levels, 1u, unsigned(std::bit_width(longest)));
    uint64_t bytes = 0;
    for (unsigned i = 0; i < made; i++) {
        bytes += array_bytes(level);
        level.Width = at_least_one(level.Width / 2);
        level.Height /= level.Height > 1 ? 2 : 1;
        level.Depth /= level.Depth > 1 && !keeps_depth ? 2 : 1;
    }
    return bytes;
}

// --- the charges -------------------------------------------------------------------------------

void PassedOn::add(Passed kind, uint64_t key, const Item &item) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        items_[size_t(kind)].emplace(key, item);
    } catch (const std::bad_alloc &) {
        return;
    }
}

bool PassedOn::retain(Passed kind, uint64_t key) {
    const std::lock_guard lock(mutex_);
    const auto found = items_[size_t(kind)].find(key);
    const bool is_known = found != items_[size_t(kind)].end();
    if (is_known) {
        found->second.references++;
    }
    return is_known;
}

uint64_t PassedOn::charge_of(Passed kind, uint64_t key) const {
    const std::lock_guard lock(mutex_);
    const auto found = items_[size_t(kind)].find(key);
    return found == items_[size_t(kind)].end() ? 0 : found->second.charge;
}

uint64_t PassedOn::charge_mapped_at(uint64_t address) const {
    const std::lock_guard lock(mutex_);
    const Items &mapped = items_[size_t(Passed::mapped)];
    const auto next = mapped.upper_bound(address);
    return next == mapped.begin() ? 0 : std::prev(next)->second.charge;
}

PassedOn::Item PassedOn::release(Passed kind, uint64_t key) {
    const std::lock_guard lock(mutex_);
    const auto found = items_[size_t(kind)].find(key);
    if (found == items_[size_t(kind)].end()) {
        return {0, nullptr, 0};
    }
    const Item was = found->second;
    if (--found->second.references == 0) {
        items_[size_t(kind)].erase(found);
    }
    return was;
}

void PassedOn::put_back(Passed kind, uint64_t key, const Item &item) noexcept {
    if (item.references > 1) {
        retain(kind, key);
    } else if (item.references == 1) {
        add(kind, key, item);
    }
}

PassedOn::Items PassedOn::release_range(Passed kind, uint64_t begin, uint64_t size) {
    const std::lock_guard lock(mutex_);
    Items &items = items_[size_t(kind)];
    Items released;
    for (auto item = items.lower_bound(begin); item != items.end() && item->first - begin < size;) {
        released.insert(items.extract(item++));
    }
    return released;
}

std::vector<PassedOn::Item> PassedOn::end(CUcontext context) {
    const std::lock_guard lock(mutex_);
    std::vector<Item> ended;
    for (Items &items : items_) {
        for (auto item = items.begin(); context && item != items.end();) {
            const bool ends = item->second.context == context;
            if (ends) {
                ended.push_back(item->second);
            }
            item = ends ? items.erase(item) : std::next(item);
        }
    }
    return ended;
}

} // namespace emm::run
