#include "physical_piece.h"

#include <algorithm>

namespace emm::run {
namespace {

using Handle = CUmemGenericAllocationHandle;

// No handle of the driver looks like this one: "EMM" and a number.
constexpr uint64_t first_handle = UINT64_C(0x454d4d) << 40;

} // namespace

Handle PhysicalMemory::made(Handle drivers, size_t size, const CUmemAllocationProp &properties,
                            uint64_t flags, uint64_t charge) {
    const auto piece = std::make_shared<Piece>();
    piece->drivers = drivers;
    piece->size = size;
    piece->properties = properties;
    piece->flags = flags;
    piece->charge = charge;
    piece->stays = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                       ? nullptr
                       : "it is the host's memory";
    const std::lock_guard lock(mutex_);
    piece->handle = first_handle + ++latest_;
    pieces_[piece->handle] = piece;
    return piece->handle;
}

// With the mutex held.
PhysicalMemory::PiecePtr PhysicalMemory::find(Handle handle) const {
    const auto found = pieces_.find(handle);
    return found == pieces_.end() || found->second->references == 0 ? nullptr : found->second;
}

Handle PhysicalMemory::drivers(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const PiecePtr piece = find(handle);
    return piece ? piece->drivers : handle;
}

void PhysicalMemory::stays(Handle handle, const char *why) {
    const std::lock_guard lock(mutex_);
    if (const PiecePtr piece = find(handle)) {
        piece->stays = why;
    }
}

void PhysicalMemory::stays_at(CUdeviceptr address, size_t size, const char *why) {
    const std::lock_guard lock(mutex_);
    for (auto &[begin, mapping] : mappings_) {
        if (begin < address + size && address < begin + mapping.size) {
            mapping.piece->stays = why;
        }
    }
}

// Gives back a piece that nothing refers to any more.
void PhysicalMemory::end_if_unused(const PiecePtr &piece) {
    {
        const std::lock_guard lock(mutex_);
        if (piece->references != 0 || !piece->mapped_at.empty() ||
            pieces_.erase(piece->handle) == 0) {
            return;
        }
    }
    if (hide(*piece).empty() && release_drivers(piece->drivers) == CUDA_SUCCESS) {
        emm_give_driver_memory(piece->charge);
    }
}

bool PhysicalMemory::release(Handle handle) {
    PiecePtr piece;
    {
        const std::lock_guard lock(mutex_);
        piece = find(handle);
        if (!piece) {
            return false;
        }
        piece->references--;
    }
    end_if_unused(piece);
    return true;
}

bool PhysicalMemory::retain(CUdeviceptr address, Handle &ret_handle) {
    const std::lock_guard lock(mutex_);
    auto found = mappings_.upper_bound(address);
    if (found == mappings_.begin() || address - (--found)->first >= found->second.size) {
        return false;
    }
    found->second.piece->references++;
    ret_handle = found->second.piece->handle;
    return true;
}

Handle PhysicalMemory::imported(Handle drivers) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(pieces_.begin(), pieces_.end(), [&](const auto &each) {
        return each.second->drivers == drivers;
    });
    if (found == pieces_.end()) {
        return 0;
    }
    found->second->references++;
    return found->first;
}

void PhysicalMemory::mapped(CUdeviceptr address, size_t size, size_t offset, Handle handle) {
    const std::lock_guard lock(mutex_);
    const PiecePtr piece = find(handle);
    if (piece) {
        piece->mapped_at.insert(address);
        mappings_[address] = {piece, size, offset, {}, true};
    }
}

// Called before the driver unmaps, because another thread may then map there at once. If the driver
// refuses a range, all of it stays mapped.
CUresult PhysicalMemory::unmap(CUdeviceptr address, size_t size,
                               const std::function<CUresult()> &ask) {
    Mappings taken;
    {
        const std::lock_guard lock(mutex_);
        for (auto each = mappings_.lower_bound(address);
             each != mappings_.end() && each->first - address < size;) {
            taken.insert(mappings_.extract(each++));
        }
    }
    const CUresult result = ask();
    if (result != CUDA_SUCCESS) {
        const std::lock_guard lock(mutex_);
        mappings_.merge(taken);
    }
    for (const auto &[begin, mapping] : taken) {
        {
            const std::lock_guard lock(mutex_);
            mapping.piece->mapped_at.erase(mapping.piece->mapped_at.find(begin));
        }
        end_if_unused(mapping.piece);
    }
    return result;
}

bool PhysicalMemory::any() const {
    const std::lock_guard lock(mutex_);
    return !pieces_.empty();
}

} // namespace emm::run
