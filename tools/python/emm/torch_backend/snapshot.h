#pragma once

#include "block_table.h"
#include "figures.h"

namespace emm::torch_backend {

using device_caching::BlockInfo;
using device_caching::SegmentInfo;

// Lists live memory as segments. emm does not tell its own, so each allocation stands for one, and
// all that a pool of emm's caches for a further one; the segments of PyTorch's pools are told as
// they are.
class SnapshotWriter {
public:
    SnapshotWriter(const std::vector<std::pair<void *, Block>> &blocks,
                   std::vector<SegmentInfo> *ret_segments)
        : segments_(*ret_segments) {
        for (const auto &[ptr, block] : blocks) {
            blocks_.emplace(ptr, &block);
        }
    }

    // Those outside of segments, of a pool or, with no_pool, of all.
    void add_allocations(MempoolId_t wanted) {
        for (const auto &[ptr, block] : blocks_) {
            if (!block->is_part && (wanted == no_pool || wanted == block->pool)) {
                add_allocation(ptr, *block);
                listed_[block->origin] += segments_.back().total_size;
            }
        }
    }

    // What a pool of emm's holds beside all that was added before. emm does not say where it is:
    // the address is one that no memory of a device has.
    void add_cached(DeviceIndex device, MempoolId_t id, emm_context *context,
                    const emm_stats &stats) {
        const size_t size = unlisted(stats, listed_[context]);
        if (size == 0) {
            return;
        }
        BlockInfo part;
        part.size = size;
        SegmentInfo info;
        info.device = device;
        info.address = made_up_address_;
        info.total_size = size;
        info.is_large = true;
        info.owner_private_pool_id = id;
        info.blocks.push_back(std::move(part));
        segments_.push_back(std::move(info));
        made_up_address_ += size;
    }

    void add_pool(DeviceIndex device, MempoolId_t id, const Pool &pool) {
        for (const Segment &segment : pool.segments()) {
            SegmentInfo info;
            info.device = device;
            info.address = address_of(segment.base);
            info.total_size = segment.size;
            info.is_large = is_large_segment(segment.size);
            info.owner_private_pool_id = id;
            for (auto each = pool.chunks().find(segment.base);
                 each != pool.chunks().end() && each->second.segment == segment.base; ++each) {
                add_chunk(each->first, each->second, &info);
            }
            segments_.push_back(std::move(info));
            listed_[segment.context] += segment.size;
        }
    }

private:
    void add_allocation(void *ptr, const Block &block) {
        BlockInfo part;
        part.size = block_size(block.size);
        part.requested_size = block.size;
        part.allocated = part.active = true;
        part.context_when_allocated = block.context;
        SegmentInfo info;
        info.device = block.device;
        info.address = address_of(ptr);
        info.total_size = info.allocated_size = info.active_size = part.size;
        info.requested_size = block.size;
        info.stream = block.stream;
        info.is_large = block.size > small_size;
        info.owner_private_pool_id = block.pool;
        info.context_when_allocated = block.context;
        info.blocks.push_back(std::move(part));
        segments_.push_back(std::move(info));
    }

    void add_chunk(void *ptr, const Chunk &chunk, SegmentInfo *segment) {
        BlockInfo part;
        part.size = chunk.size;
        part.requested_size = chunk.requested;
        part.allocated = chunk.requested != 0;
        part.active = part.allocated || chunk.waiting;
        const auto block = blocks_.find(ptr);
        if (part.allocated && block != blocks_.end()) {
            part.context_when_allocated = block->second->context;
        }
        segment->stream = chunk.stream;
        segment->requested_size += part.requested_size;
        segment->allocated_size += part.allocated ? chunk.size : 0;
        segment->active_size += part.active ? chunk.size : 0;
        segment->blocks.push_back(std::move(part));
    }

    std::map<void *, const Block *> blocks_;
    std::vector<SegmentInfo> &segments_;
    std::map<emm_context *, size_t> listed_; // bytes of the segments that were added
    size_t made_up_address_ = size_t(1) << 40;
};

} // namespace emm::torch_backend
