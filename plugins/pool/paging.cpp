// growth=vmm: pieces of physical memory behind ranges of addresses. A block that fits nowhere is
// made where the fewest bytes are missing; those are new, or come from free blocks elsewhere:
// plan.h decides. Only complete memory is ever taken apart: cuMemUnmap does not wait, and what a
// graph may use is never complete.
#include "manager.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace emm::pool {
namespace {

constexpr uint64_t page = page_bytes;
constexpr size_t parts_considered = 4096; // of free memory, when some of it is to move
constexpr size_t parts_at_a_time = 64;    // when some of it goes back to the driver
constexpr uint64_t least_space = uint64_t(4) << 30;
} // namespace

// What the options leave open depends on the device. Throws PluginError where it cannot be had.
bool Manager::grows_by_pages() const {
    const bool asked = options_.growth == Growth::pages;
    const bool possible =
        driver_.serves_pages() &&
        has_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, true);
    if (asked && !possible) {
        throw PluginError(EMM_E_NOT_SUPPORTED, 0,
                          "pool: growth=vmm needs a driver and a device with virtual memory "
                          "management");
    }
    const bool pages = asked || (options_.growth == Growth::automatic && possible && can_share());
    char text[160];
    snprintf(text, sizeof text, "pool: growth=%s on device %d (%s)", pages ? "vmm" : "segment",
             device_,
             options_.growth != Growth::automatic ? "as asked for"
             : !possible                          ? "it has no virtual memory management"
             : !pages                             ? "it cannot share memory by descriptor"
                                                  : "it has virtual memory management");
    host_.log(EMM_LOG_INFO, text);
    return pages;
}

// A driver that does not tell is asked for no attribute and believed `unknown`.
bool Manager::has_attribute(CUdevice_attribute attribute, bool unknown) const {
    int value = 0;
    if (!driver_.cuDeviceGetAttribute ||
        driver_.cuDeviceGetAttribute(&value, attribute, device_) != CUDA_SUCCESS) {
        return unknown;
    }
    return value != 0;
}

// Whether other processes may have pages: the device and the host must serve that.
bool Manager::can_share() const {
    const bool served =
        host_.struct_size >= offsetof(emm_host, withdraw_ipc) + sizeof host_.withdraw_ipc &&
        host_.serve_ipc && host_.withdraw_ipc;
    return served &&
           has_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, false);
}

void Manager::prepare_paging() {
    pages_shareable_ = can_share();
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
    if (has_dirty_pages() && !moves_.are_deferred() && !enough()) {
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

bool Manager::has_pages_for(const Heap::Room &room) const {
    if (!room.hole) {
        return true; // which costs no memory
    }
    uint64_t bytes =
        new_bytes(room.missing, holdings_.allowance(room.missing), free_slack(options_.slack));
    if (bytes < room.missing) {
        for (const IdlePiece &each : heap_.idle_pieces(room.beside, parts_considered)) {
            bytes += each.piece.bytes;
        }
    }
    return bytes >= room.missing;
}

// Addresses cost little; as much again each time keeps their ranges few.
CUresult Manager::add_space(Lock &lock, uint64_t bytes, Zone zone) {
    uint64_t size = std::max(least_space, round_up(16 * bytes, page));
    uint64_t held = 0;
    for (Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        held += s->size;
    }
    size = std::max(size, held);
    lock.unlock();
    CUresult result = CUDA_SUCCESS;
    std::unique_ptr<Segment> segment;
    try {
        CUdeviceptr base = 0;
        result = driver_.cuMemAddressReserve(&base, size, page, 0, 0);
        if (result == CUDA_SUCCESS) {
            try {
                segment = std::make_unique<Segment>(base, size, base, size);
                segment->pieces = Pieces(base, size);
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

// A plan for the room, made of what is idle now; nothing but new memory if there is no host memory
// for more.
FillPlan Manager::plan_for(const Heap::Room &room, bool may_grow) const {
    const Allowance allowed = holdings_.allowance(room.missing);
    FillRequest request;
    request.missing = room.missing;
    request.room = room.hole->size;
    const auto fresh = [&](double part) {
        return may_grow ? new_bytes(room.missing, allowed, part) : 0;
    };
    request.fresh = fresh(free_slack(options_.slack));
    if (request.fresh == room.missing) {
        const uint64_t least = new_bytes(options_.segment, allowed, options_.slack);
        request.growth = std::max(growth_bytes(room.missing, allowed), least);
    }
    request.piece = piece_bytes(std::max(room.missing, request.growth), allowed);
    try {
        std::vector<IdlePiece> idle;
        if (request.fresh < room.missing && !moves_.are_deferred()) {
            idle = heap_.idle_pieces(room.beside, parts_considered);
        }
        FillPlan plan = plan_fill(request, idle);
        if (may_use_slack(room.missing, allowed.most) && moved_ns_ + plan.cost() > allowance_ns()) {
            request.fresh = fresh(options_.slack);
            plan = plan_fill(request, idle);
        }
        return plan;
    } catch (const std::bad_alloc &) {
        return plan_growth(request);
    }
}

// What moving may have cost by now.
uint64_t Manager::allowance_ns() const {
    return moving_allowance(caches_.calls_served(), holdings_.requested());
}

// What a plan takes out of the heap for as long as the driver works on it.
struct Manager::Fill {
    // All that needs host memory comes before anything is taken. `room` is NULL where a plan only
    // gives memory back.
    Fill(Manager &manager, const FillPlan &plan, const Heap::Room *room);

    std::vector<Block *> moving, leaving; // a piece each
    std::vector<uint64_t> sizes;          // of new pieces
    std::vector<Piece> gone, pieces;      // released; mapped or made for the target
    const std::vector<CUmemAccessDesc> access;
    Block *target = nullptr;
    Block *spare = nullptr;     // a record, in case that only a part of the target gets memory
    size_t moved = 0, left = 0; // how many of them the driver has taken away
    uint64_t mapped = 0;        // bytes behind the target
};

Manager::Fill::Fill(Manager &manager, const FillPlan &plan, const Heap::Room *room)
    : sizes(plan.sizes), access(manager.access_) {
    Heap &heap = manager.heap_;
    std::vector<IdlePiece> chosen;
    chosen.reserve(plan.moved.size() + plan.released.size());
    moving.reserve(plan.moved.size());
    leaving.reserve(plan.released.size());
    gone.reserve(plan.released.size());
    pieces.reserve(plan.moved.size() + sizes.size());
    chosen = plan.moved;
    chosen.insert(chosen.end(), plan.released.begin(), plan.released.end());
    std::sort(chosen.begin(), chosen.end(), [](const IdlePiece &a, const IdlePiece &b) {
        return a.piece.address < b.piece.address;
    });
    heap.reserve_records(3 * chosen.size() + 5);
    for (Block *block : heap.take_pieces(chosen)) {
        const bool moves =
            std::any_of(plan.moved.begin(), plan.moved.end(), [block](const IdlePiece &each) {
                return each.piece.address == block->begin;
            });
        (moves ? moving : leaving).push_back(block);
    }
    if (room) {
        target = heap.take_hole(*room, plan.mapped);
        spare = heap.take_record();
    }
}

CUresult Manager::fill(Lock &lock, const Heap::Room &room, bool may_grow) {
    const FillPlan plan = plan_for(room, may_grow);
    if (!holdings_.has_room_for(plan.created, plan.released_bytes())) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return carry_out(lock, plan, &room);
}

CUresult Manager::carry_out(Lock &lock, const FillPlan &plan, const Heap::Room *room) {
    Fill work(*this, plan, room);
    if (may_use_slack(plan.mapped, holdings_.most_with(0))) {
        moved_ns_ += plan.cost();
    }
    const uint64_t more = plan.created - std::min(plan.created, plan.released_bytes());
    const Holdings::Arrival arrival(holdings_, more);
    fills_++;
    const Moves::Move move(moves_);
    lock.unlock();
    const CUresult result = ask_driver(work);
    lock.lock();
    fills_--;
    access_free_.notify_all();
    served_.note_error(result);
    settle(work);
    check();
    return result;
}

// What is given back comes first, then new memory, then what moves: if there is no new memory,
// nothing has moved. No lock is held.
CUresult Manager::ask_driver(Fill &work) {
    CUresult result = CUDA_SUCCESS;
    work.left = unmap(work.leaving, work.gone, result);
    release(work.gone);
    if (result == CUDA_SUCCESS) {
        result = create_pieces(work.sizes, work.pieces);
    }
    const size_t made = work.pieces.size();
    if (result == CUDA_SUCCESS) {
        work.moved = unmap(work.moving, work.pieces, result);
    }
    std::rotate(work.pieces.begin(), work.pieces.begin() + ptrdiff_t(made), work.pieces.end());
    if (work.target) {
        work.mapped = map_pieces(*work.target, work.pieces, work.moved, work.access, result);
    }
    return result;
}

// What the driver has done becomes the heap's.
void Manager::settle(Fill &work) {
    const auto hand_back = [this](const std::vector<Block *> &blocks, size_t taken_away) {
        for (size_t i = 0; i < blocks.size(); i++) {
            Block &block = *blocks[i];
            holdings_.remove(i < taken_away ? block.size : 0);
            i < taken_away ? heap_.make_hole(block) : heap_.give(block, heap_.anyone);
        }
    };
    hand_back(work.leaving, work.left);
    hand_back(work.moving, work.moved);
    if (!work.target) {
        return;
    }
    holdings_.add(work.mapped);
    Block &target = *work.target;
    if (work.mapped > 0 && work.mapped < target.size) {
        heap_.make_hole(*heap_.split(target, work.mapped, *work.spare));
    } else {
        heap_.give_record(work.spare);
    }
    work.mapped > 0 ? heap_.give(target, heap_.anyone) : heap_.make_hole(target);
}

// Until no thread changes what peers may use.
void Manager::await_access(Lock &lock) {
    access_free_.wait(lock, [this] { return !changing_access_; });
}

// --- back to the driver --------------------------------------------------------------------------

// Pieces of the smallest parts of free memory go first. They go whole, so a little less than `keep`
// may stay.
uint64_t Manager::release_pages(Lock &lock, uint64_t keep) {
    const uint64_t before = holdings_.reserved();
    CUresult result = CUDA_SUCCESS;
    await_access(lock);
    while (!moves_.are_deferred() && holdings_.cached() > keep && result == CUDA_SUCCESS) {
        FillPlan plan;
        uint64_t missing = holdings_.cached() - keep;
        for (const IdlePiece &each : heap_.idle_pieces(nullptr, parts_at_a_time)) {
            if (missing > 0) {
                plan.released.push_back(each);
                missing -= std::min(missing, each.piece.bytes);
            }
        }
        if (plan.released.empty()) {
            break;
        }
        result = carry_out(lock, plan, nullptr);
        await_access(lock);
    }
    return before - std::min(before, holdings_.reserved());
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
    access_free_.wait(lock, [this] { return fills_ == 0; });
    CUresult result = CUDA_SUCCESS;
    try {
        access_.reserve(access_.size() + 1);
        for (Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
            s->pieces.each([&](const Piece &piece) {
                if (!runs.empty() && runs.back().first + runs.back().second == piece.address) {
                    runs.back().second += piece.bytes;
                } else {
                    runs.emplace_back(piece.address, piece.bytes);
                }
            });
        }
    } catch (...) {
        changing_access_ = false;
        access_free_.notify_all();
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
    access_free_.notify_all();
    lock.unlock();
    return result == CUDA_SUCCESS ? EMM_OK : served_.failed(result, "cuMemSetAccess");
}

} // namespace emm::pool
