// growth=vmm, the driver's side: pages made, mapped and given back. No lock is held.
#include "manager.h"

#include <numeric>
#include <utility>

namespace emm::pool {
namespace {

constexpr size_t many = 32; // pieces

CUmemAllocationProp properties(int32_t device, bool shareable) {
    CUmemAllocationProp found = {};
    found.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    found.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    found.location.id = device;
    if (shareable) {
        found.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    return found;
}

} // namespace

// Takes the memory away from behind blocks of one piece each. How many have been served: all, or
// those before the one that the driver refused.
size_t Manager::unmap(const std::vector<Block *> &blocks, std::vector<Piece> &ret_pieces,
                      CUresult &result) {
    const Relaxed relaxed(driver_);
    size_t done = 0;
    while (done < blocks.size()) {
        Block &block = *blocks[done];
        const Piece piece = block.segment->pieces.at(block.begin);
        result = driver_.cuMemUnmap(piece.address, piece.bytes);
        if (result != CUDA_SUCCESS) {
            break;
        }
        block.segment->pieces.remove(piece);
        ret_pieces.push_back(piece);
        done++;
    }
    return done;
}

void Manager::release(const std::vector<Piece> &pieces) const {
    const Relaxed relaxed(driver_);
    for (const Piece &piece : pieces) {
        driver_.cuMemRelease(piece.handle);
    }
}

// Whether the driver has that much: asked for as one piece, which goes back at once. Piece by piece
// a request that fails would keep the memory from other programs until then.
CUresult Manager::try_as_one(const std::vector<uint64_t> &sizes) const {
    const CUmemAllocationProp wanted = properties(device_, pages_shareable_);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = driver_.cuMemCreate(
        &handle, std::accumulate(sizes.begin(), sizes.end(), uint64_t(0)), &wanted, 0);
    if (result == CUDA_SUCCESS) {
        driver_.cuMemRelease(handle);
    }
    return result;
}

// All of them or none: pieces of these sizes, whose addresses are not known yet. There is room for
// them in the vector.
CUresult Manager::create_pieces(const std::vector<uint64_t> &sizes,
                                std::vector<Piece> &ret_pieces) {
    const Relaxed relaxed(driver_);
    const CUmemAllocationProp wanted = properties(device_, pages_shareable_);
    const size_t before = ret_pieces.size();
    const CUresult possible = sizes.size() >= many ? try_as_one(sizes) : CUDA_SUCCESS;
    if (possible != CUDA_SUCCESS) {
        return possible;
    }
    for (const uint64_t bytes : sizes) {
        CUmemGenericAllocationHandle handle = 0;
        const CUresult result = driver_.cuMemCreate(&handle, bytes, &wanted, 0);
        if (result != CUDA_SUCCESS) {
            while (ret_pieces.size() > before) {
                driver_.cuMemRelease(ret_pieces.back().handle);
                ret_pieces.pop_back();
            }
            return result;
        }
        ret_pieces.push_back({0, bytes, handle});
    }
    return CUDA_SUCCESS;
}

// Puts pieces behind a block, side by side from its beginning. The bytes in place: of all, or of
// the first `kept` pieces if it has to stop; the other pieces are given back to the driver.
uint64_t Manager::map_pieces(Block &block, std::vector<Piece> &pieces, size_t kept,
                             const std::vector<CUmemAccessDesc> &access, CUresult &result) {
    const Relaxed relaxed(driver_);
    uint64_t at = block.begin;
    size_t mapped = 0;
    CUresult latest = CUDA_SUCCESS;
    while (mapped < pieces.size()) {
        latest = map_piece(block, at, pieces[mapped]);
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
                block.segment->stuck = true;
            }
            mapped = 0;
            at = block.begin;
            latest = granted;
        }
    }
    for (size_t i = 0; i < pieces.size(); i++) {
        if (i < mapped) {
            block.segment->pieces.add(pieces[i]);
        } else {
            driver_.cuMemRelease(pieces[i].handle);
        }
    }
    result = result == CUDA_SUCCESS ? latest : result;
    return at - block.begin;
}

CUresult Manager::map_piece(const Block &block, uint64_t at, const Piece &piece) const {
    CUresult result = driver_.cuMemMap(at, piece.bytes, 0, piece.handle, 0);
    if (result == CUDA_ERROR_ALREADY_MAPPED && block.segment->stuck &&
        driver_.cuMemUnmap(at, piece.bytes) == CUDA_SUCCESS) {
        result = driver_.cuMemMap(at, piece.bytes, 0, piece.handle, 0);
    }
    return result;
}

// All work of the context. cuMemFree waits for it and leaves captures valid, which cuCtxSynchronize
// does not. No lock is held.
void Manager::await_device() {
    const Current current(driver_, context_, context_id_);
    const Relaxed relaxed(driver_);
    CUdeviceptr any = 0;
    if (driver_.cuMemAlloc(&any, 1) == CUDA_SUCCESS) {
        driver_.cuMemFree(any);
    } else {
        driver_.cuCtxSynchronize();
    }
}

// No lock is held, and nobody uses the memory any more; the device may still be at it. What the
// driver refuses is kept for another time: its addresses would soon be all there are
// where a tool such as the thread sanitizer leaves a program few of them.
uint64_t Manager::free_space(Segment &segment) {
    const bool again = std::exchange(segment.refused, false); // then it has been counted
    uint64_t bytes = 0;
    const Relaxed relaxed(driver_);
    segment.pieces.each([&](const Piece &piece) {
        bytes += again ? 0 : piece.bytes;
        if (driver_.cuMemUnmap(piece.address, piece.bytes) == CUDA_SUCCESS) {
            driver_.cuMemRelease(piece.handle);
            segment.pieces.remove(piece);
        } else {
            segment.refused = true;
        }
    });
    if (!segment.refused && !segment.stuck) {
        segment.refused =
            driver_.cuMemAddressFree(segment.driver_base, segment.driver_bytes) != CUDA_SUCCESS;
    }
    return bytes;
}

} // namespace emm::pool
