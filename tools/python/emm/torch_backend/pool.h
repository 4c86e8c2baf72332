// One pool of PyTorch's on one device. Knows nothing of PyTorch but the names of two types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

struct CUstream_st;
struct emm_context;

namespace c10::cuda::CUDACachingAllocator {
class CUDAAllocator;
}

namespace emm::torch_backend {

constexpr size_t small_size = size_t(1) << 20; // up to this, PyTorch counts memory as small
constexpr size_t granule = 512;                // of the blocks that PyTorch counts

// PyTorch counts this many bytes as allocated for a tensor of that size.
constexpr size_t block_size(size_t requested) {
    return (requested + granule - 1) / granule * granule;
}

// Small memory comes in segments of 2 MiB, and large memory in larger ones.
constexpr bool is_large_segment(size_t size) {
    return size > 2 * small_size;
}

using Stream = CUstream_st *; // cudaStream_t

// From emm's pool `context`, or from `source`, the allocator of torch.cuda.MemPool(allocator).
struct Segment {
    char *base = nullptr;
    size_t size = 0;
    std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> source;
    emm_context *context = nullptr;
};

// The parts that a pool of PyTorch's gives up: segments and, once the pool has ended, its pool of
// emm's.
struct GivenUp {
    std::vector<Segment> segments;
    emm_context *context = nullptr;
};

// A part of a segment. A freed part is given out again to the stream of its segment.
struct Chunk {
    size_t size = 0;
    size_t requested = 0; // 0: free
    char *segment = nullptr;
    Stream stream = nullptr;
    std::vector<Stream> users; // other streams that have used the part
    bool waiting = false;      // freed, but `users` may still use it
};

using Chunks = std::map<char *, Chunk>; // those of a segment are neighbours

// A pool of PyTorch's. Where emm's rules suffice, its tensors are allocations in a pool of emm's.
// Otherwise they are parts of segments: the best fit in segments that stay, where a freed part
// merges with free neighbours.
class Pool {
public:
    // A graph is replayed on memory that was freed, and PyTorch rewinds its pool. A foreign
    // allocator and no_split prescribe segments, too.
    bool uses_segments() const { return is_captured_ || no_split_ || source_; }

    // Whether other requests may use free memory of its segments when memory is short.
    bool lends() const { return use_on_oom_ && !is_captured_; }

    // Whether its idle segments may be given back for a request of `its_own`, or of another pool.
    bool may_shrink(bool its_own) const { return !is_captured_ && (its_own || !source_); }

    void *take(size_t size, Stream stream) {
        const size_t wanted = block_size(size);
        auto best = chunks_.end();
        for (auto each = chunks_.begin(); each != chunks_.end(); ++each) {
            const Chunk &chunk = each->second;
            if (is_free(chunk) && chunk.stream == stream && chunk.size >= wanted &&
                (best == chunks_.end() || chunk.size < best->second.size)) {
                best = each;
            }
        }
        if (best == chunks_.end()) {
            return nullptr;
        }
        if (!no_split_ && best->second.size > wanted) {
            Chunk rest = best->second;
            rest.size -= wanted;
            chunks_.emplace(best->first + wanted, rest);
            best->second.size = wanted;
        }
        best->second.requested = size;
        return best->first;
    }

    // Gives the other streams that may still use the part; then the part waits for release().
    std::vector<Stream> put(void *ptr) {
        auto found = chunks_.find(static_cast<char *>(ptr));
        if (found == chunks_.end()) {
            return {};
        }
        std::vector<Stream> users = std::exchange(found->second.users, {});
        found->second.requested = 0;
        found->second.waiting = !users.empty();
        join(found);
        return users;
    }

    void release(void *ptr) {
        auto found = chunks_.find(static_cast<char *>(ptr));
        if (found != chunks_.end() && found->second.waiting) {
            found->second.waiting = false;
            join(found);
        }
    }

    void adopt(Segment segment, Stream stream) {
        chunks_[segment.base] = {segment.size, 0, segment.base, stream, {}, false};
        segments_.push_back(std::move(segment));
    }

    void share(void *ptr, Stream user) {
        auto found = chunks_.find(static_cast<char *>(ptr));
        if (found != chunks_.end()) {
            found->second.users.push_back(user);
        }
    }

    // The size of a new segment for so many bytes.
    size_t segment_size(size_t size) const {
        const size_t least = size <= small_size                      ? 2 * small_size
                             : size <= 10 * small_size && !no_split_ ? 20 * small_size
                                                                     : size;
        return (least + 2 * small_size - 1) / (2 * small_size) * (2 * small_size);
    }

    // Whether all segments of these chunks still exist.
    bool holds_segments_of(const Chunks &earlier) const {
        return std::all_of(earlier.begin(), earlier.end(), [this](const auto &each) {
            return std::any_of(segments_.begin(), segments_.end(), [&](const Segment &segment) {
                return segment.base == each.second.segment;
            });
        });
    }

    // Rewinds to the earlier chunks. Later segments become free.
    void restore(const Chunks &earlier) {
        Chunks restored = earlier;
        for (const Segment &segment : segments_) {
            if (!restored.count(segment.base)) {
                const Stream stream = chunks_.at(segment.base).stream;
                restored[segment.base] = {segment.size, 0, segment.base, stream, {}, false};
            }
        }
        chunks_ = std::move(restored);
    }

    // Takes out the segments that are not needed: if the pool has no users, those without live
    // memory. They then belong to the caller.
    std::vector<Segment> take_unneeded() {
        return users_ > 0 ? std::vector<Segment>{} : take_segments(has_no_live_memory);
    }

    // Takes out the segments that are free as a whole, with or without users of the pool.
    std::vector<Segment> take_idle() { return take_segments(is_free); }

    bool is_over() const { return users_ <= 0 && segments_.empty() && allocations_ == 0; }

    const Chunks &chunks() const { return chunks_; }
    const std::vector<Segment> &segments() const { return segments_; }

    int users_ = 0;
    size_t allocations_ = 0;   // live ones of emm's
    bool is_captured_ = false; // a graph was captured with it
    bool no_split_ = false;
    bool use_on_oom_ = false;
    emm_context *context_ = nullptr; // of emm's; NULL: none yet, or the pool has a source
    std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> source_;

private:
    Chunks::const_iterator behind(char *segment) const {
        return std::find_if_not(chunks_.find(segment), chunks_.end(), [segment](const auto &each) {
            return each.second.segment == segment;
        });
    }

    // Takes segments of which all parts are so.
    std::vector<Segment> take_segments(bool (*is_so)(const Chunk &)) {
        std::vector<Segment> taken;
        const auto kept =
            std::stable_partition(segments_.begin(), segments_.end(), [&](const Segment &segment) {
                return !are_all(segment.base, is_so);
            });
        for (auto each = kept; each != segments_.end(); ++each) {
            chunks_.erase(chunks_.find(each->base), behind(each->base));
            taken.push_back(std::move(*each));
        }
        segments_.erase(kept, segments_.end());
        return taken;
    }

    bool are_all(char *segment, bool (*is_so)(const Chunk &)) const {
        return std::all_of(chunks_.find(segment), behind(segment),
                           [is_so](const auto &each) { return is_so(each.second); });
    }

    static bool is_free(const Chunk &chunk) { return chunk.requested == 0 && !chunk.waiting; }
    static bool has_no_live_memory(const Chunk &chunk) { return chunk.requested == 0; }

    void join(Chunks::iterator chunk) {
        merge(chunk);
        if (chunk != chunks_.begin()) {
            merge(std::prev(chunk));
        }
    }

    // Merges the chunk with the next one, if both are free parts of one segment.
    void merge(Chunks::iterator chunk) {
        auto next = std::next(chunk);
        if (next != chunks_.end() && is_free(chunk->second) && is_free(next->second) &&
            chunk->second.segment == next->second.segment) {
            chunk->second.size += next->second.size;
            chunks_.erase(next);
        }
    }

    Chunks chunks_;
    std::vector<Segment> segments_;
};

} // namespace emm::torch_backend
