#include "page_driver.h"

#include "cuda/relaxed.h"
#include "policy/growth.h"

#include <algorithm>
#include <numeric>

namespace emm::pool {
namespace {

// Names that older headers lack: CU_MEM_LOCATION_TYPE_HOST_NUMA, and of CU_DEVICE_ATTRIBUTE_
// HOST_NUMA_ID and HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED.
constexpr auto host_numa = CUmemLocationType(3);
constexpr auto host_numa_id = CUdevice_attribute(134), maps_host_numa = CUdevice_attribute(141);

// `unknown` if the driver has no call for attributes, or does not know this one.
int attribute_of(const ServedContext &context, CUdevice_attribute attribute, int unknown) {
    const Driver &driver = context.driver;
    int value = 0;
    if (!driver.cuDeviceGetAttribute ||
        driver.cuDeviceGetAttribute(&value, attribute, context.device) != CUDA_SUCCESS) {
        return unknown;
    }
    return value;
}

bool has_attribute(const ServedContext &context, CUdevice_attribute attribute, bool unknown) {
    return attribute_of(context, attribute, unknown) != 0;
}

} // namespace

bool PageDriver::is_served(const ServedContext &context) {
    return context.driver.serves_pages() &&
           has_attribute(context, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, true);
}

bool PageDriver::can_share(const ServedContext &context) {
    const emm_host &host = context.host;
    return host.struct_size >= offsetof(emm_host, withdraw_ipc) + sizeof host.withdraw_ipc &&
           host.serve_ipc && host.withdraw_ipc &&
           has_attribute(context, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                         false);
}

bool PageDriver::can_reach_cards(const ServedContext &context) {
    return has_attribute(context, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                         false);
}

// A driver before CUDA 12.9 does not know the attribute.
bool PageDriver::can_spill(const ServedContext &context) {
    return has_attribute(context, maps_host_numa, true);
}

// Without NUMA the driver reports -1, but expects 0.
int PageDriver::nearest_node(const ServedContext &context) {
    return std::max(0, attribute_of(context, host_numa_id, 0));
}

// Libraries that exchange memory need two properties: descriptors (NCCL), and access by network
// cards (NCCL, UCX). Host memory has neither.
CUmemAllocationProp PageDriver::properties(bool spilled) const {
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    if (spilled) {
        wanted.location = {host_numa, host_node_};
        return wanted;
    }
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = context_.device;
    if (shares_) {
        wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    wanted.allocFlags.gpuDirectRDMACapable = reaches_cards_;
    return wanted;
}

CUdeviceptr PageDriver::reserve_addresses(uint64_t bytes, CUresult &result) const {
    CUdeviceptr base = 0;
    result = driver_.cuMemAddressReserve(&base, bytes, page_bytes, 0, 0);
    return base;
}

void PageDriver::free_addresses(CUdeviceptr base, uint64_t bytes) const {
    driver_.cuMemAddressFree(base, bytes);
}

// The end of the run of pieces that lie side by side in one segment, from `first` on.
size_t PageDriver::end_of_run(std::span<const Piece> pieces, size_t first, const Heap &heap) {
    const Segment &segment = heap.segment_at(pieces[first].address);
    size_t end = first + 1;
    while (end < pieces.size() && pieces[end].address == pieces[end - 1].end() &&
           &heap.segment_at(pieces[end].address) == &segment) {
        end++;
    }
    return end;
}

// Unmaps neighbours in one call. If the driver refuses that, the first is unmapped alone, then the
// others.
size_t PageDriver::unmap(std::vector<Piece> &pieces, size_t count, const Heap &heap,
                         CUresult &result) const {
    const Relaxed relaxed(driver_);
    const auto unmap_until = [&](size_t first, size_t end) {
        return end_mappings(pieces[first].address, pieces[end - 1].end());
    };
    size_t done = 0;
    while (done < count) {
        size_t end = std::min(count, end_of_run(pieces, done, heap));
        CUresult answer = unmap_until(done, end);
        if (answer != CUDA_SUCCESS && end > done + 1) {
            end = done + 1;
            answer = unmap_until(done, end);
        }
        if (answer == CUDA_SUCCESS) {
            done = end;
            continue;
        }
        result = result == CUDA_SUCCESS ? answer : result;
        const auto refused = pieces.begin() + ptrdiff_t(done);
        std::rotate(refused, refused + 1, pieces.begin() + ptrdiff_t(count--));
    }
    return done;
}

void Refused::add(const Piece &piece) noexcept {
    bytes += piece.bytes;
    spilled += piece.spilled ? piece.bytes : 0;
    try {
        pieces.push_back(piece);
    } catch (const std::bad_alloc &) {
    }
}

void PageDriver::release(const Piece &piece, Refused &refused) const noexcept {
    const Relaxed relaxed(driver_);
    if (!is_returned(driver_.cuMemRelease(piece.handle))) {
        refused.add(piece);
    }
}

// If the pieces were made one by one, a failing request would keep the memory from other programs
// meanwhile. No trial without need: the driver clears what the trial gives back, which takes time
// and slows the copies of a resume.
CUresult PageDriver::try_room(uint64_t bytes, Refused &refused) const {
    const Relaxed relaxed(driver_);
    size_t free = 0, total = 0;
    if (driver_.cuMemGetInfo(&free, &total) == CUDA_SUCCESS && free >= bytes) {
        return CUDA_SUCCESS;
    }
    const CUmemAllocationProp wanted = properties(false);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = driver_.cuMemCreate(&handle, bytes, &wanted, 0);
    if (result == CUDA_SUCCESS) {
        release({0, bytes, handle}, refused);
    }
    return result;
}

CUresult PageDriver::create(const std::vector<uint64_t> &sizes, std::vector<Piece> &ret_pieces,
                            Refused &refused, bool spilled) const {
    const Relaxed relaxed(driver_);
    const CUmemAllocationProp wanted = properties(spilled);
    const size_t before = ret_pieces.size();
    const bool tries =
        !spilled && is_worth_a_trial(sizes.size()); // host memory is paid by the byte
    const CUresult possible =
        tries ? try_room(std::accumulate(sizes.begin(), sizes.end(), uint64_t(0)), refused)
              : CUDA_SUCCESS;
    if (possible != CUDA_SUCCESS) {
        return possible;
    }
    for (const uint64_t bytes : sizes) {
        CUmemGenericAllocationHandle handle = 0;
        const CUresult result = driver_.cuMemCreate(&handle, bytes, &wanted, 0);
        if (result != CUDA_SUCCESS) {
            while (ret_pieces.size() > before) {
                release(ret_pieces.back(), refused);
                ret_pieces.pop_back();
            }
            return result;
        }
        ret_pieces.push_back({0, bytes, handle, 0, spilled});
    }
    return CUDA_SUCCESS;
}

size_t PageDriver::map(Block &block, std::vector<Piece> &pieces, size_t kept,
                       const std::vector<CUmemAccessDesc> &access, CUresult &result,
                       Refused &refused) const {
    const Relaxed relaxed(driver_);
    std::shared_lock lock = begin_mapping();
    uint64_t at = block.begin;
    size_t mapped = 0;
    CUresult latest = CUDA_SUCCESS;
    while (mapped < pieces.size()) {
        latest = map_piece(at, pieces[mapped]);
        if (latest != CUDA_SUCCESS) {
            break;
        }
        pieces[mapped].address = at;
        at += pieces[mapped++].bytes;
    }
    const bool stops = latest != CUDA_SUCCESS || result != CUDA_SUCCESS;
    while (stops && mapped > kept &&
           driver_.cuMemUnmap(pieces[mapped - 1].address, pieces[mapped - 1].bytes) ==
               CUDA_SUCCESS) {
        at = pieces[--mapped].address;
    }
    if (mapped > 0) {
        const CUresult granted =
            driver_.cuMemSetAccess(block.begin, at - block.begin, access.data(), access.size());
        if (granted != CUDA_SUCCESS) {
            if (driver_.cuMemUnmap(block.begin, at - block.begin) != CUDA_SUCCESS) {
                std::for_each(
                    pieces.begin(), pieces.begin() + ptrdiff_t(mapped),
                    [&](const Piece &piece) { keep_stuck(*block.segment, piece, false); });
            }
            mapped = 0;
            latest = granted;
        }
    }
    lock.unlock();
    for (size_t i = mapped; i < pieces.size(); i++) {
        if (!pieces[i].other) { // mapped nowhere else
            release(pieces[i], refused);
        }
    }
    result = result == CUDA_SUCCESS ? latest : result;
    return mapped;
}

template <class Which> bool PageDriver::end_stuck_if(Which which) const noexcept {
    const std::lock_guard lock(stuck_mutex_);
    bool none_left = true;
    std::erase_if(stuck_, [&](const Stuck &each) {
        const bool ended = which(each) && driver_.cuMemUnmap(each.mapping.address,
                                                             each.mapping.bytes) == CUDA_SUCCESS;
        none_left = none_left && which(each) == ended;
        return ended;
    });
    return none_left;
}

std::shared_lock<std::shared_mutex> PageDriver::begin_mapping() const {
    const std::lock_guard turn(turn_mutex_);
    return std::shared_lock(mapping_mutex_);
}

CUresult PageDriver::end_mappings(uint64_t begin, uint64_t end) const {
    const std::lock_guard turn(turn_mutex_);
    const std::lock_guard lock(mapping_mutex_);
    end_stuck_if([](const Stuck &each) { return !each.has_access; });
    return driver_.cuMemUnmap(begin, end - begin);
}

CUresult PageDriver::map_piece(uint64_t at, const Piece &piece) const {
    CUresult result = driver_.cuMemMap(at, piece.bytes, 0, piece.handle, 0);
    if (result == CUDA_ERROR_ALREADY_MAPPED && end_stuck(at, at + piece.bytes)) {
        result = driver_.cuMemMap(at, piece.bytes, 0, piece.handle, 0);
    }
    return result;
}

// If there is no host memory to note a stuck mapping, the mapping stays permanently.
void PageDriver::keep_stuck(Segment &segment, const Piece &mapping,
                            bool has_access) const noexcept {
    try {
        const std::lock_guard lock(stuck_mutex_);
        stuck_.push_back({mapping, has_access});
    } catch (const std::bad_alloc &) {
        segment.keeps_addresses = true;
    }
}

bool PageDriver::end_stuck(uint64_t begin, uint64_t end) const noexcept {
    return end_stuck_if([=](const Stuck &each) {
        return each.mapping.address < end && begin < each.mapping.end();
    });
}

// Neighbouring mappings end in one call; if the driver refuses that, one by one. A piece is
// released with its last place.
uint64_t PageDriver::give_back(Segment &segment, uint64_t begin, uint64_t end, const Segments &all,
                               Refused &refused) const {
    const auto pieces_of = [&](uint64_t at) -> Pieces & {
        Segment *s = all.first();
        while (at < s->base || s->end() <= at) {
            s = all.next(*s);
        }
        return s->pieces;
    };
    const bool at_once = begin < end && end_mappings(begin, end) == CUDA_SUCCESS;
    uint64_t bytes = 0;
    for (uint64_t at = begin; at < end;) {
        const Piece piece = segment.pieces.at(at);
        at = piece.end();
        if (!at_once && end_mappings(piece.address, piece.end()) != CUDA_SUCCESS) {
            segment.refused = true;
            continue;
        }
        if (piece.other == 0) {
            bytes += piece.bytes;
            release(piece, refused);
        }
        leave_ring(piece.address, pieces_of);
        segment.pieces.remove(piece);
    }
    return bytes;
}

uint64_t PageDriver::give_back(Segment &segment, const Segments &all, Refused &refused) const {
    uint64_t bytes = 0, begin = 0, end = 0; // of mappings side by side
    const Relaxed relaxed(driver_);
    segment.refused = !end_stuck(segment.driver_base, segment.driver_base + segment.driver_bytes);
    segment.pieces.each([&](const Piece &piece) {
        if (piece.handle == 0) {
            bytes += piece.bytes;
            segment.pieces.remove(piece);
            return;
        }
        if (piece.address != end) {
            bytes += give_back(segment, begin, end, all, refused);
            begin = piece.address;
        }
        end = piece.end();
    });
    bytes += give_back(segment, begin, end, all, refused);
    if (!segment.refused && !segment.keeps_addresses) {
        segment.refused =
            driver_.cuMemAddressFree(segment.driver_base, segment.driver_bytes) != CUDA_SUCCESS;
    }
    return bytes;
}

} // namespace emm::pool
