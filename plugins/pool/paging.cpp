// growth=vmm: physical pages of 2 MiB behind ranges of addresses. A block that fits nowhere is made
// where the fewest pages are missing; those come from free blocks elsewhere, or are new. Only
// complete memory is ever taken apart: cuMemUnmap does not wait, and what a graph may use is never
// complete.
#include "manager.h"

#include <algorithm>
#include <utility>

namespace emm::pool {
namespace {

constexpr uint64_t page = segment_granule;
constexpr uint64_t least_space = uint64_t(64) << 30; // addresses cost next to nothing
constexpr uint64_t slack = 128; // new pages are preferred up to 1/128 above the most ever taken

} // namespace

void Manager::allow_paging() {
    if (!driver_.serves_pages()) {
        throw PluginError(EMM_E_NOT_SUPPORTED, 0,
                          "pool: growth=vmm needs a driver with virtual memory management");
    }
    int shareable = 0;
    const bool served =
        host_.struct_size >= offsetof(emm_host, withdraw_ipc) + sizeof host_.withdraw_ipc &&
        host_.serve_ipc && host_.withdraw_ipc && driver_.cuDeviceGetAttribute;
    pages_shareable_ =
        served &&
        driver_.cuDeviceGetAttribute(
            &shareable, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device_) ==
            CUDA_SUCCESS &&
        shareable != 0;
    CUmemAccessDesc own = {};
    own.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    own.location.id = device_;
    own.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access_.push_back(own);
}

Block *Manager::grow_paged(Lock &lock, StreamPool &pool, uint64_t bytes, CUresult &result) {
    if (Block *block = await_pages(lock, pool, bytes)) {
        return block;
    }
    constexpr int attempts = 4; // others may be quicker with what lies beside
    bool at_ease = true; // until the driver has no more: then what is free elsewhere has to do
    for (int i = 1; i <= attempts;) {
        await_access(lock);
        const Heap::Room room = i < attempts ? heap_.room_for(pool, bytes, zone_for(bytes))
                                             : heap_.room_alone(bytes, zone_for(bytes));
        if (!room.hole) {
            result = add_space(lock, bytes, zone_for(bytes));
            if (result != CUDA_SUCCESS) {
                return nullptr;
            }
            continue;
        }
        i++;
        result = room.missing > 0 ? fill(lock, room, at_ease) : CUDA_SUCCESS;
        Block *block = take_block(pool, bytes);
        const bool again = result == CUDA_ERROR_OUT_OF_MEMORY && at_ease;
        if (block || (result != CUDA_SUCCESS && !again)) {
            return block;
        }
        at_ease = at_ease && !again;
    }
    result = CUDA_ERROR_OUT_OF_MEMORY;
    return nullptr;
}

// The same for pages.
Block *Manager::await_pages(Lock &lock, StreamPool &pool, uint64_t bytes) {
    Block *block = nullptr;
    const auto enough = [&] {
        const Heap::Room room = heap_.room_for(pool, bytes, zone_for(bytes));
        return has_pages_for(room);
    };
    if (has_dirty_pages() && deferring_ == 0 && !enough()) {
        order_.wait_bounded(lock, pool, [&] {
            block = take_block(pool, bytes);
            return block || enough();
        });
    }
    return block;
}

bool Manager::has_dirty_pages() const {
    for (const StreamPool *d = order_.first_incomplete(); d; d = order_.next_incomplete(*d)) {
        for (const SizeTree &own : d->own) {
            const SizeNode *largest = own.largest();
            if (largest && largest->size >= page) {
                return true;
            }
        }
    }
    return false;
}

// New pages that cost hardly any memory.
uint64_t Manager::at_ease(uint64_t pages) const {
    const uint64_t most = most_with(pages * page);
    const uint64_t goal = std::min(options_.max, most + most / slack);
    return goal > claimed() ? std::min(pages, (goal - claimed()) / page) : 0;
}

bool Manager::has_pages_for(const Heap::Room &room) const {
    if (!room.hole) {
        return true; // which costs no memory
    }
    const Block *left = room.bridge || !room.at_its_end ? room.hole->left : nullptr;
    const Block *right = room.bridge || room.at_its_end ? room.hole->right : nullptr;
    const uint64_t wanted = room.missing / page;
    uint64_t pages = at_ease(wanted);
    SizeNode position;
    position.size = page - 1;
    while (pages < wanted) {
        const SizeNode *part = heap_.part_with_pages(position);
        if (!part) {
            return false;
        }
        position.size = part->size;
        position.address = part->address;
        const bool spared = part->block() == left || part->block() == right;
        pages += spared ? 0 : Heap::whole_pages(*part);
    }
    return true;
}

CUresult Manager::add_space(Lock &lock, uint64_t bytes, Zone zone) {
    const uint64_t size = std::max(least_space, round_up(2 * bytes, page));
    lock.unlock();
    CUresult result = CUDA_SUCCESS;
    std::unique_ptr<Segment> segment;
    try {
        CUdeviceptr base = 0;
        result = driver_.cuMemAddressReserve(&base, size, page, 0, 0);
        if (result == CUDA_SUCCESS) {
            try {
                segment = std::make_unique<Segment>(base, size, base, size);
                segment->handles = HostPages<uint64_t>(size / page);
                const Lock again(mutex_);
                heap_.prepare(*segment);
            } catch (...) {
                driver_.cuMemAddressFree(base, size);
                throw;
            }
        }
    } catch (...) {
        lock.lock();
        throw;
    }
    lock.lock();
    served_.note_error(result);
    if (segment) {
        segment->zone = zone;
        heap_.add_space(*segment.release());
    }
    return result;
}

// A record must be reserved.
Manager::Moving Manager::moving(Block *block) {
    return {block, heap_.take_record(), 0};
}

// The pages of complete free blocks, smallest blocks first. What is to become one with the target
// is spared, but for what it has too much.
uint64_t Manager::steal(const Block &target, const Heap::Room &room, uint64_t wanted,
                        std::vector<Moving> &blocks) {
    const Block *left = room.bridge || !room.at_its_end ? target.left : nullptr;
    const Block *right = room.bridge || room.at_its_end ? target.right : nullptr;
    uint64_t pages = 0;
    const auto take = [&](const SizeNode &part, uint64_t most, bool last) {
        heap_.reserve_records(5);
        const uint64_t taken = std::min({Heap::whole_pages(part), wanted - pages, most});
        if (taken > 0) {
            blocks.push_back(moving(heap_.take_pages(part, taken, last)));
            pages += taken;
        }
        return taken;
    };
    SizeNode position;
    position.size = page - 1;
    try {
        while (pages < wanted) {
            const SizeNode *part = heap_.part_with_pages(position);
            if (!part) {
                break;
            }
            position.size = part->size;
            position.address = part->address;
            if (part->block() != left && part->block() != right) {
                take(*part, wanted, false);
            }
        }
        uint64_t excess = room.excess / page;
        if (excess > 0 && right && right->state == State::free && !right->dirty()) {
            excess -= take(right->low, excess, true);
        }
        if (excess > 0 && left && left->state == State::free && !left->dirty()) {
            take(left->low, excess, false);
        }
    } catch (const std::bad_alloc &) {
        return pages; // new ones will do
    }
    return pages;
}

// Puts memory behind a part of a hole; `at_ease`: new pages where they cost hardly any memory. All
// that needs host memory comes before anything is taken, and new pages come before any move: if
// they cannot be had, all is as it was.
CUresult Manager::fill(Lock &lock, Heap::Room room, bool at_ease) {
    const uint64_t pages = room.missing / page;
    std::vector<Moving> stolen;
    std::vector<uint64_t> handles, created;
    stolen.reserve(pages);
    handles.reserve(pages);
    created.reserve(pages);
    const std::vector<CUmemAccessDesc> access = access_;
    heap_.reserve_records(5);
    Moving target = moving(heap_.take_hole(room));
    const uint64_t wanted = pages - (at_ease ? Manager::at_ease(pages) : 0);
    const uint64_t moved = deferring_ == 0 ? steal(*target.block, room, wanted, stolen) : 0;
    const uint64_t fresh = pages - moved;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t mapped = 0;
    if (fresh <= (options_.max - std::min(options_.max, claimed())) / page) {
        arriving_ += fresh * page;
        fills_++;
        begin_move();
        lock.unlock();
        result = create_pages(created, fresh);
        for (size_t i = 0; i < stolen.size() && result == CUDA_SUCCESS; i++) {
            stolen[i].gone = unmap(*stolen[i].block, handles, result);
        }
        const uint64_t kept = handles.size();
        handles.insert(handles.end(), created.begin(), created.end());
        mapped = map_pages(*target.block, handles, kept, access, result);
        lock.lock();
        arriving_ -= fresh * page;
        fills_--;
        end_move();
        served_.note_error(result);
    }
    for (Moving &each : stolen) {
        reserved_ -= each.gone * page;
        part(each, each.gone, false);
    }
    reserved_ += mapped * page;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    part(target, mapped, true);
    check();
    return result;
}

// The first pages of a taken block become free memory and the rest a hole, or the other way round.
void Manager::part(Moving &moving, uint64_t pages, bool front_is_memory) {
    const auto settle = [this](Block &piece, bool memory) {
        memory ? heap_.give(piece, heap_.anyone) : heap_.make_hole(piece);
    };
    Block &block = *moving.block;
    if (pages > 0 && pages * page < block.size) {
        Block *rest = heap_.split(block, pages * page, *moving.spare);
        settle(*rest, !front_is_memory);
    } else {
        heap_.give_record(moving.spare);
    }
    settle(block, (pages > 0) == front_is_memory);
}

// Until no thread changes what peers may use.
void Manager::await_access(Lock &lock) {
    moved_.wait(lock, [this] { return !changing_access_; });
}

// --- back to the driver --------------------------------------------------------------------------

uint64_t Manager::release_pages(Lock &lock, uint64_t keep) {
    uint64_t released = 0;
    SizeNode position;
    position.size = page - 1;
    CUresult result = CUDA_SUCCESS;
    await_access(lock);
    while (deferring_ == 0 && cached_bytes() > keep && result == CUDA_SUCCESS) {
        const SizeNode *found = heap_.part_with_pages(position);
        if (!found) {
            break;
        }
        position.size = found->size;
        position.address = found->address;
        const uint64_t wanted = (cached_bytes() - keep + page - 1) / page;
        std::vector<uint64_t> handles;
        handles.reserve(Heap::whole_pages(*found));
        heap_.reserve_records(5);
        Moving block =
            moving(heap_.take_pages(*found, std::min(Heap::whole_pages(*found), wanted), false));
        fills_++;
        begin_move();
        lock.unlock();
        const uint64_t gone = unmap(*block.block, handles, result);
        for (const uint64_t handle : handles) {
            driver_.cuMemRelease(handle);
        }
        lock.lock();
        fills_--;
        served_.note_error(result);
        reserved_ -= gone * page;
        released += gone * page;
        part(block, gone, false);
        end_move();
        await_access(lock);
    }
    return released;
}

// --- peers ---------------------------------------------------------------------------------------

// What is mapped now, run by run, and by way of `access_` what will be. Nothing is mapped or
// unmapped meanwhile.
emm_status Manager::set_paged_access(int32_t peer, uint32_t flags) {
    CUmemAccessDesc wanted = {};
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = peer;
    wanted.flags = static_cast<CUmemAccess_flags>(flags);
    std::vector<std::pair<uint64_t, uint64_t>> runs;
    Lock lock(mutex_);
    await_access(lock);
    changing_access_ = true;
    moved_.wait(lock, [this] { return fills_ == 0; });
    CUresult result = CUDA_SUCCESS;
    try {
        access_.reserve(access_.size() + 1);
        for (Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
            for (uint64_t i = 0; i < s->handles.size(); i++) {
                const uint64_t address = s->base + i * page;
                if (s->handles[i] == 0) {
                    continue;
                }
                if (!runs.empty() && runs.back().first + runs.back().second == address) {
                    runs.back().second += page;
                } else {
                    runs.emplace_back(address, page);
                }
            }
        }
    } catch (...) {
        changing_access_ = false;
        moved_.notify_all();
        throw;
    }
    lock.unlock();
    for (const auto &[address, bytes] : runs) {
        if (result == CUDA_SUCCESS) {
            result = driver_.cuMemSetAccess(address, bytes, &wanted, 1);
        }
    }
    lock.lock();
    if (result == CUDA_SUCCESS) {
        access_.erase(std::remove_if(access_.begin(), access_.end(),
                                     [&](const auto &known) { return known.location.id == peer; }),
                      access_.end());
        if (flags != EMM_ACCESS_NONE) {
            access_.push_back(wanted);
        }
    }
    changing_access_ = false;
    moved_.notify_all();
    lock.unlock();
    return result == CUDA_SUCCESS ? EMM_OK : served_.failed(result, "cuMemSetAccess");
}

} // namespace emm::pool
