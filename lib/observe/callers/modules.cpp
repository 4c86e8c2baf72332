#include "observe/callers/modules.h"

#include "observe/events/module.h"
#include "observe/process.h"

#include <algorithm>
#include <deque>
#include <link.h>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

namespace emm::observe {
namespace {

// Numbers of paths. They are given once, so that a library which is loaded again has its own.
class Names {
public:
    uint32_t number(const std::string &path) {
        const std::lock_guard lock(mutex_);
        const auto [place, is_new] = numbers_.try_emplace(path, uint32_t(paths_.size()));
        if (is_new) {
            paths_.push_back(path);
        }
        return place->second;
    }
    const std::string &path(uint32_t number) {
        const std::lock_guard lock(mutex_);
        return paths_[number < paths_.size() ? number : 0];
    }

private:
    std::mutex mutex_;
    std::deque<std::string> paths_{""};
    std::unordered_map<std::string, uint32_t> numbers_{{"", 0}};
};

constexpr auto &names = immortal<Names>;

struct Counts {
    uint64_t loads = 0, unloads = 0;
};

int count(dl_phdr_info *info, size_t, void *data) {
    *static_cast<Counts *>(data) = {info->dlpi_adds, info->dlpi_subs};
    return 1; // the first one says it all
}

Counts counts_now() {
    Counts counts;
    dl_iterate_phdr(&count, &counts);
    return counts;
}

// While the dynamic linker's lock is held, no lock of ours is taken: numbers come afterwards.
struct Loaded {
    CodeRange range;
    std::string path;
};
struct Collected {
    std::vector<Loaded> all;
    Counts counts;
};

int collect(dl_phdr_info *info, size_t, void *data) {
    Collected &collected = *static_cast<Collected *>(data);
    collected.counts = {info->dlpi_adds, info->dlpi_subs};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
            const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
            collected.all.push_back(
                {{begin, begin + segment.p_memsz, info->dlpi_addr, 0, false}, library_name(*info)});
        }
    }
    return 0;
}

std::unique_ptr<CodeMap> map_now() {
    Collected collected;
    dl_iterate_phdr(&collect, &collected);
    auto map = std::make_unique<CodeMap>();
    map->loads = collected.counts.loads;
    map->unloads = collected.counts.unloads;
    for (Loaded &loaded : collected.all) {
        if (loaded.path.empty()) {
            loaded.path = program_path();
        }
        loaded.range.module = names().number(loaded.path);
        loaded.range.is_passing = is_passing_library(loaded.path);
        map->ranges.push_back(loaded.range);
    }
    std::sort(map->ranges.begin(), map->ranges.end(),
              [](const CodeRange &one, const CodeRange &other) { return one.begin < other.begin; });
    return map;
}

bool is_older(const CodeMap *map, const Counts &counts) {
    return !map || map->loads != counts.loads || map->unloads != counts.unloads;
}

} // namespace

bool is_passing_library(std::string_view path) {
    static constexpr std::string_view beginnings[] = {
        "libemm.so", "libemm-run.so", "libemm-bridge", "libcuda.so",
        "libcudart", "libffi.so",     "libffi-"};
    const std::string_view name = path.substr(path.rfind('/') + 1); // all, if there is none
    return std::any_of(std::begin(beginnings), std::end(beginnings), [&](std::string_view start) {
        return name.substr(0, start.size()) == start;
    });
}

const CodeRange *range_around(const std::vector<CodeRange> &ranges, uintptr_t address) noexcept {
    // The last one that begins at or before the address.
    auto above = std::upper_bound(
        ranges.begin(), ranges.end(), address,
        [](uintptr_t value, const CodeRange &range) { return value < range.begin; });
    if (above == ranges.begin() || address >= (--above)->end) {
        return nullptr;
    }
    return &*above;
}

const CodeRange *Modules::find_anew(uintptr_t address) noexcept {
    const CodeMap *const known = map_.load(std::memory_order_acquire);
    if (!is_older(known, counts_now())) {
        return nullptr;
    }
    try {
        CodeMap *const made = map_now().release();
        made->before = known;
        while (!map_.compare_exchange_weak(made->before, made, std::memory_order_acq_rel)) {
        }
        if (made->before && made->before->unloads != made->unloads) {
            generation_.fetch_add(1, std::memory_order_relaxed);
            if (on_unload) {
                on_unload();
            }
        }
        return range_around(made->ranges, address);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

bool Modules::notice_unloads() noexcept {
    const uint32_t before = generation();
    const CodeMap *const known = map_.load(std::memory_order_acquire);
    if (known && known->unloads != counts_now().unloads) {
        find_anew(0);
    }
    return generation() != before;
}

const std::string &Modules::path(uint32_t module) noexcept {
    return names().path(module);
}

} // namespace emm::observe
