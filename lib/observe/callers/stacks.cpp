#include "observe/callers/stacks.h"

#include "observe/callers/modules.h"
#include "observe/callers/python_frames.h"
#include "observe/process.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

namespace emm::observe {
namespace {

struct Entry {
    uint64_t hash = 0;
    // The generation of the modules, because other code may lie at the same addresses later.
    uint32_t generation = 0;
    size_t natives = 0;
    std::vector<uint64_t> words;
    Stack stack;

    bool is(uint64_t other_hash, uint32_t of, const FoundStack &found) const {
        return hash == other_hash && generation == of && natives == found.natives &&
               stack.tag == found.tag && words.size() == found.natives + found.pythons &&
               std::equal(words.begin(), words.end(), found.words);
    }
};

uint64_t hash_of(const FoundStack &found, uint32_t generation) {
    uint64_t hash = reinterpret_cast<uintptr_t>(found.tag) + generation + 1;
    for (size_t i = 0; i < found.natives + found.pythons; i++) {
        hash = (hash ^ found.words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

emm_frame native_frame(uint64_t address) {
    const CodePlace place = modules().place_of(address);
    emm_frame frame = {};
    const std::string &path = modules().path(place.module);
    frame.module = path.empty() ? nullptr : path.c_str();
    frame.offset = place.offset;
    return frame;
}

emm_frame python_frame(uint64_t word) {
    const PythonCode &code = python_code(uint32_t(word >> 32));
    emm_frame frame = {};
    frame.module = code.file.c_str();
    frame.function = code.function.c_str();
    frame.line = uint32_t(word);
    return frame;
}

std::unique_ptr<Entry> make_entry(uint64_t hash, uint32_t generation, const FoundStack &found) {
    auto made = std::make_unique<Entry>();
    made->hash = hash;
    made->generation = generation;
    made->natives = found.natives;
    made->stack.tag = found.tag;
    made->words.assign(found.words, found.words + found.natives + found.pythons);
    for (size_t i = 0; i < made->words.size(); i++) {
        made->stack.frames.push_back(i < found.natives ? native_frame(made->words[i])
                                                       : python_frame(made->words[i]));
    }
    return made;
}

struct KnownStacks {
    static constexpr size_t recent_count = 8192, most = 100'000;
    std::atomic<const Entry *> recent[recent_count] = {};
    std::mutex mutex;
    std::unordered_multimap<uint64_t, std::unique_ptr<const Entry>> all;

    const Entry *find_or_make(uint64_t hash, uint32_t generation, const FoundStack &found) {
        const std::lock_guard lock(mutex);
        const auto [first, last] = all.equal_range(hash);
        for (auto place = first; place != last; ++place) {
            if (place->second->is(hash, generation, found)) {
                return place->second.get();
            }
        }
        if (all.size() >= most) {
            return nullptr;
        }
        return all.emplace(hash, make_entry(hash, generation, found))->second.get();
    }
};

constexpr auto &known_stacks = immortal<KnownStacks>;

} // namespace

const Stack *known_stack(const FoundStack &found) noexcept {
    KnownStacks &known = known_stacks();
    const uint32_t generation = modules().generation();
    const uint64_t hash = hash_of(found, generation);
    std::atomic<const Entry *> &recent = known.recent[hash % KnownStacks::recent_count];
    const Entry *entry = recent.load(std::memory_order_acquire);
    if (entry && entry->is(hash, generation, found)) [[likely]] {
        return &entry->stack;
    }
    try {
        entry = known.find_or_make(hash, generation, found);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
    if (!entry) {
        return nullptr;
    }
    recent.store(entry, std::memory_order_release);
    return &entry->stack;
}

} // namespace emm::observe
