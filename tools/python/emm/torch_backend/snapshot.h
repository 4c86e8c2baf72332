#pragma once

#include "block_table.h"
#include "figures.h"
#include "layout.h"

namespace emm::torch_backend {

using device_caching::BlockInfo;
using device_caching::SegmentInfo;

// Lists memory as segments: those of PyTorch's pools as they are, and the rest by pages (layout.h).
// emm does not tell the addresses of other cached memory.
class SnapshotWriter {
public:
    SnapshotWriter(const std::vector<std::pair<void *, Block>> &blocks,
                   std::vector<SegmentInfo> *ret_segments)
        : segments_(*ret_segments) {
        for (const auto &[ptr, block] : blocks) {
            (block.is_part ? parts_ : blocks_[block.origin]).emplace(ptr, &block);
        }
    }

    // Lists the memory of a pool of emm's beside the segments that were added before. `id` is the
    // pool of PyTorch's behind it, if any is.
    void add_context(DeviceIndex device, MempoolId_t id, emm_context *context,
                     const emm_stats &stats) {
        const std::map<void *, const Block *> &of_context = blocks_[context];
        std::vector<Live> live;
        for (const auto &[ptr, block] : of_context) {
            live.push_back({address_of(ptr), block_size(block->size)});
        }
        const size_t held = unlisted(stats, listed_[context]);
        size_t listed = 0;
        for (const Run &run : runs_of(live, held, &listed)) {
            const auto first = std::next(of_context.begin(), ptrdiff_t(run.first));
            add_run(device, first->second->pool, run, live, of_context);
        }
        if (held > listed) {
            add_cached(device, id, held - listed);
        }
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
    void add_run(DeviceIndex device, MempoolId_t id, const Run &run, const std::vector<Live> &live,
                 const std::map<void *, const Block *> &blocks) {
        SegmentInfo info;
        info.device = device;
        info.address = run.address;
        info.total_size = run.size;
        info.is_large = is_large_segment(run.size);
        info.owner_private_pool_id = id;
        for (const Part &part : parts_of(run, live)) {
            const void *ptr = pointer_to(live[part.index].address);
            add_part(part, part.is_live ? blocks.at(const_cast<void *>(ptr)) : nullptr, &info);
        }
        segments_.push_back(std::move(info));
    }

    static void add_part(const Part &part, const Block *block, SegmentInfo *segment) {
        BlockInfo info;
        info.size = part.size;
        if (block) {
            info.requested_size = block->size;
            info.allocated = info.active = true;
            info.context_when_allocated = block->context;
            segment->stream = segment->allocated_size ? segment->stream : block->stream;
            segment->requested_size += block->size;
            segment->allocated_size += block_size(block->size);
            segment->active_size += block_size(block->size);
        }
        segment->blocks.push_back(std::move(info));
    }

    // The address is one that no memory of a device has.
    void add_cached(DeviceIndex device, MempoolId_t id, size_t size) {
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

    void add_chunk(void *ptr, const Chunk &chunk, SegmentInfo *segment) {
        BlockInfo part;
        part.size = chunk.size;
        part.requested_size = chunk.requested;
        part.allocated = chunk.requested != 0;
        part.active = part.allocated || chunk.waiting;
        const auto block = parts_.find(ptr);
        if (part.allocated && block != parts_.end()) {
            part.context_when_allocated = block->second->context;
        }
        segment->stream = chunk.stream;
        segment->requested_size += part.requested_size;
        segment->allocated_size += part.allocated ? chunk.size : 0;
        segment->active_size += part.active ? chunk.size : 0;
        segment->blocks.push_back(std::move(part));
    }

    std::map<emm_context *, std::map<void *, const Block *>> blocks_;
    std::map<void *, const Block *> parts_;
    std::vector<SegmentInfo> &segments_;
    std::map<emm_context *, size_t> listed_; // bytes of the segments that were added
    size_t made_up_address_ = size_t(1) << 40;
};

} // namespace emm::torch_backend
