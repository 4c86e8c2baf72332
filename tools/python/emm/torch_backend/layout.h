// Live blocks as the segments of a snapshot. Knows nothing of PyTorch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace emm::torch_backend {

struct Live {
    size_t address = 0;
    size_t size = 0; // as PyTorch counts it
};

// Blocks that lie together, and the addresses that are shown for them.
struct Run {
    size_t first = 0, count = 0; // of the blocks
    size_t address = 0, size = 0;
};

// A part of a run: a live block, or the idle bytes between two.
struct Part {
    size_t size = 0;
    bool is_live = false;
    size_t index = 0; // of the block
};

// The driver maps device memory in pages of 2 MiB, so a block holds all of its pages.
constexpr size_t page_size = size_t(2) << 20;

constexpr size_t page_floor(size_t address) {
    return address / page_size * page_size;
}

constexpr size_t page_ceil(size_t address) {
    return page_floor(address + page_size - 1);
}

// Makes a run of blocks that share a page with the block before. `blocks` are sorted by address.
inline std::vector<Run> runs_by_page(const std::vector<Live> &blocks) {
    std::vector<Run> runs;
    for (size_t i = 0; i < blocks.size(); i++) {
        const size_t begin = page_floor(blocks[i].address);
        const size_t end = page_ceil(blocks[i].address + blocks[i].size);
        if (runs.empty() || begin >= runs.back().address + runs.back().size) {
            runs.push_back({i, 0, begin, 0});
        }
        Run &run = runs.back();
        run.count++;
        run.size = std::max(run.size, end - run.address);
    }
    return runs;
}

// Makes a run for each block, if a pool holds less than whole pages.
inline std::vector<Run> runs_by_block(const std::vector<Live> &blocks) {
    std::vector<Run> runs;
    for (size_t i = 0; i < blocks.size(); i++) {
        runs.push_back({i, 1, blocks[i].address, blocks[i].size});
    }
    return runs;
}

// The runs for a pool that holds `held` bytes. `ret_size` gets their bytes in all.
inline std::vector<Run> runs_of(const std::vector<Live> &blocks, size_t held, size_t *ret_size) {
    const auto size_of = [](const std::vector<Run> &runs) {
        size_t size = 0;
        for (const Run &run : runs) {
            size += run.size;
        }
        return size;
    };
    std::vector<Run> runs = runs_by_page(blocks);
    if (size_of(runs) > held) {
        runs = runs_by_block(blocks);
    }
    *ret_size = size_of(runs);
    return runs;
}

// The parts fill the run. A block whose counted size reaches into the next block ends there.
inline std::vector<Part> parts_of(const Run &run, const std::vector<Live> &blocks) {
    std::vector<Part> parts;
    size_t at = run.address;
    const auto skip_to = [&](size_t address) {
        if (address > at) {
            parts.push_back({address - at, false, 0});
            at = address;
        }
    };
    for (size_t i = run.first; i < run.first + run.count; i++) {
        skip_to(blocks[i].address);
        const bool is_last = i + 1 == run.first + run.count;
        const size_t most = (is_last ? run.address + run.size : blocks[i + 1].address) - at;
        parts.push_back({std::min(blocks[i].size, most), true, i});
        at += parts.back().size;
    }
    skip_to(run.address + run.size);
    return parts;
}

} // namespace emm::torch_backend
