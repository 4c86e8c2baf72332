#pragma once

#include "types.h"

#include <array>
#include <c10/util/flat_hash_map.h>
#include <optional>

namespace emm::torch_backend {

struct Block {
    size_t size = 0; // as asked for
    cudaStream_t stream = nullptr;
    MempoolId_t pool = no_pool;
    DeviceIndex device = 0;
    bool exported = false;
    bool is_part = false;          // of a segment of its pool
    emm_context *origin = nullptr; // of emm's; of a foreign allocator's segment NULL
    Context context;
};

// The live blocks, by address. PyTorch frees by address alone.
class BlockTable {
public:
    void insert(void *ptr, Block block) {
        Shard &shard = shard_of(ptr);
        Lock guard(shard.lock);
        shard.blocks[ptr] = std::move(block);
    }

    std::optional<Block> take(void *ptr) {
        Shard &shard = shard_of(ptr);
        Lock guard(shard.lock);
        auto found = shard.blocks.find(ptr);
        if (found == shard.blocks.end()) {
            return std::nullopt;
        }
        Block block = std::move(found->second);
        shard.blocks.erase(found);
        return block;
    }

    std::optional<Block> find(const void *ptr) {
        Shard &shard = shard_of(ptr);
        Lock guard(shard.lock);
        auto found = shard.blocks.find(const_cast<void *>(ptr));
        return found == shard.blocks.end() ? std::nullopt : std::optional<Block>(found->second);
    }

    void mark_exported(void *ptr) {
        Shard &shard = shard_of(ptr);
        Lock guard(shard.lock);
        auto found = shard.blocks.find(ptr);
        if (found != shard.blocks.end()) {
            found->second.exported = true;
        }
    }

    std::vector<std::pair<void *, Block>> all() {
        std::vector<std::pair<void *, Block>> found;
        for (Shard &shard : shards_) {
            Lock guard(shard.lock);
            found.insert(found.end(), shard.blocks.begin(), shard.blocks.end());
        }
        return found;
    }

private:
    static constexpr size_t count = 64;

    struct alignas(64) Shard {
        std::mutex lock;
        ska::flat_hash_map<void *, Block> blocks;
    };

    // Neighbours go to different shards.
    Shard &shard_of(const void *ptr) {
        const uintptr_t bits = reinterpret_cast<uintptr_t>(ptr) >> 9;
        return shards_[(bits ^ (bits >> 6) ^ (bits >> 12)) % count];
    }

    std::array<Shard, count> shards_;
};

} // namespace emm::torch_backend
