#include "observe/callers/modules.h"

#include "observe/process.h"

#include <algorithm>
#include <deque>
#include <link.h>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

namespace emm::observe {
namespace {

// Numbers of paths. A number is given once, so a library that is loaded again has its old number.
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
    return 1; // the first object has the counts
}

Counts counts_now() {
    Counts counts;
    dl_iterate_phdr(&count, &counts);
    return counts;
}

// The loaded modules. While the dynamic linker's lock is held, no lock of ours and no memory is
// taken, because malloc may have a lock. Segments without room are counted.
struct Collected {
    struct Segment {
        CodeRange range;
        size_t name; // where its name begins in `names`
    };
    std::vector<Segment> segments;
    std::vector<char> names; // each followed by its NUL
    size_t segment_count = 0, name_bytes = 0;
    Counts counts;

    bool has_room() const { return segment_count <= segments.size() && name_bytes <= names.size(); }
    void make_room() {
        segments.resize(std::exchange(segment_count, 0));
        names.resize(std::exchange(name_bytes, 0));
    }
};

// The dynamic linker wrote the name under a lock that the thread sanitizer does not see.
__attribute__((no_sanitize("thread"))) int collect(dl_phdr_info *info, size_t, void *data) {
    Collected &all = *static_cast<Collected *>(data);
    all.counts = {info->dlpi_adds, info->dlpi_subs};
    const size_t name = all.name_bytes;
    const char *at = info->dlpi_name ? info->dlpi_name : "";
    do {
        if (all.name_bytes++ < all.names.size()) {
            all.names[all.name_bytes - 1] = *at;
        }
    } while (*at++ != '\0');
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 &&
            all.segment_count++ < all.segments.size()) {
            const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
            all.segments[all.segment_count - 1] = {
                {begin, begin + segment.p_memsz, info->dlpi_addr, 0, false}, name};
        }
    }
    return 0;
}

std::unique_ptr<CodeMap> map_now() {
    Collected all;
    do {
        all.make_room();
        dl_iterate_phdr(&collect, &all);
    } while (!all.has_room());
    auto map = std::make_unique<CodeMap>();
    map->loads = all.counts.loads;
    map->unloads = all.counts.unloads;
    for (size_t i = 0; i < all.segment_count; i++) {
        const std::string name = &all.names[all.segments[i].name];
        const std::string path = name.empty() ? program_path() : name;
        map->ranges.push_back(all.segments[i].range);
        map->ranges.back().module = names().number(path);
        map->ranges.back().is_passing = is_passing_library(path);
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
    // The whole path, if it has no slash.
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return std::any_of(std::begin(beginnings), std::end(beginnings), [&](std::string_view start) {
        return name.substr(0, start.size()) == start;
    });
}

const CodeRange *range_around(const std::vector<CodeRange> &ranges, uintptr_t address) noexcept {
    // The last range that begins at or before the address.
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
