// Pieces that leave their addresses and come back to them.
#include "page_driver.h"

#include "cuda/relaxed.h"

namespace emm::pool {

// If the driver refuses to unmap a run, the run stays as it is.
void PageDriver::take_away(std::span<const Piece> pieces, const Heap &heap,
                           std::vector<Piece> &ret_gone, Refused &refused) const {
    const Relaxed relaxed(driver_);
    for (size_t i = 0, end = 0; i < pieces.size(); i = end) {
        end = end_of_run(pieces, i, heap);
        if (end_mappings(pieces[i].address, pieces[end - 1].end()) != CUDA_SUCCESS) {
            continue;
        }
        for (size_t at = i; at < end; at++) {
            release(pieces[at], refused);
            ret_gone.push_back(pieces[at]);
        }
    }
}

CUresult PageDriver::make_again(std::span<Piece> pieces) const {
    const Relaxed relaxed(driver_);
    const CUmemAllocationProp wanted = properties(false);
    for (Piece &piece : pieces) {
        CUmemGenericAllocationHandle handle = 0;
        const CUresult result = driver_.cuMemCreate(&handle, piece.bytes, &wanted, 0);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        piece.handle = handle;
    }
    return CUDA_SUCCESS;
}

CUresult PageDriver::map_again(std::span<const Piece> pieces,
                               const std::vector<CUmemAccessDesc> &access, const Heap &heap,
                               size_t &mapped) const {
    const Relaxed relaxed(driver_);
    CUresult result = CUDA_SUCCESS;
    for (const Piece &piece : pieces) {
        result = map_piece(piece.address, piece);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        mapped++;
    }
    for (size_t i = 0, end = 0; i < pieces.size() && result == CUDA_SUCCESS; i = end) {
        end = end_of_run(pieces, i, heap);
        const uint64_t begin = pieces[i].address;
        result = driver_.cuMemSetAccess(begin, pieces[end - 1].end() - begin, access.data(),
                                        access.size());
    }
    return result;
}

// Pieces that stay mapped are unmapped before anything else is mapped there.
void PageDriver::withdraw(std::span<const Piece> pieces, size_t mapped, bool in_use,
                          const Heap &heap, Refused &refused) const noexcept {
    const Relaxed relaxed(driver_);
    for (size_t i = 0; i < pieces.size(); i++) {
        const Piece &piece = pieces[i];
        if (piece.handle == 0) {
            return; // the pieces behind have none either
        }
        if (i < mapped &&
            (in_use || (driver_.cuMemUnmap(piece.address, piece.bytes) != CUDA_SUCCESS &&
                        driver_.cuMemUnmap(piece.address, piece.bytes) != CUDA_SUCCESS))) {
            keep_stuck(heap.segment_at(piece.address), piece, true);
        }
        release(piece, refused);
    }
}

} // namespace emm::pool
