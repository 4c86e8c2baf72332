#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emm::observe {

// A place in the code of a file, which is a program or a shared library.
struct CodePlace {
    uint32_t module = 0; // the file's number; 0: code of no file, and `offset` is the address
    uint64_t offset = 0; // from the beginning of the file's mapping

    bool operator==(const CodePlace &) const = default;
};

// The range of a module's code in this process.
struct CodeRange {
    uintptr_t begin = 0, end = 0, base = 0;
    uint32_t module = 0;
    bool is_passing = false; // see is_passing_library
};

// Whether the path is that of a library that only passes calls on, so that the caller is behind it:
// emm's own, the CUDA runtime, libffi.
bool is_passing_library(std::string_view path);

// The range that holds `address`, among sorted ranges; NULL: none.
const CodeRange *range_around(const std::vector<CodeRange> &ranges, uintptr_t address) noexcept;

// The loaded code at the last look.
struct CodeMap {
    std::vector<CodeRange> ranges;   // sorted
    uint64_t loads = 0, unloads = 0; // since the process began
    const CodeMap *before = nullptr; // the map that this one has replaced
};

// The range where a thread found an address last, because most of its next addresses lie there too.
// Trivial, because ending threads use it; initial-exec, because a look at it must not be a function
// call.
struct LastRange {
    const CodeMap *map = nullptr; // the map in which it was found
    const CodeRange *range = nullptr;
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local LastRange last_range;

// Finds the file of an address. Readers take no lock and do not ask the dynamic linker, unless the
// address is unknown. An unloaded library is noticed at the next `notice_unloads`. Replaced maps
// stay, because a reader may be using them: some 40 bytes for each library loaded then.
class Modules {
public:
    // NULL: the address is in no file. The pointer stays valid; after `notice_unloads` its content
    // may be old.
    const CodeRange *find(uintptr_t address) noexcept {
        const CodeMap *const map = map_.load(std::memory_order_acquire);
        if (map) [[likely]] {
            const LastRange last = last_range;
            if (last.map == map &&
                address - last.range->begin < last.range->end - last.range->begin) {
                return last.range;
            }
            if (const CodeRange *const found = range_around(map->ranges, address)) {
                last_range = {map, found};
                return found;
            }
        }
        return find_anew(address);
    }
    CodePlace place_of(uintptr_t address) noexcept {
        const CodeRange *const range = find(address);
        return range ? CodePlace{range->module, address - range->base} : CodePlace{0, address};
    }

    // True if a library was unloaded since the last call: stored addresses may be stale.
    bool notice_unloads() noexcept;

    // The number of noticed unloads.
    uint32_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }

    // The path as the dynamic linker knows it, with any characters; "" for number 0. Valid
    // permanently.
    const std::string &path(uint32_t module) noexcept;

private:
    [[gnu::noinline, gnu::cold]] const CodeRange *find_anew(uintptr_t address) noexcept;

    std::atomic<const CodeMap *> map_{nullptr};
    std::atomic<uint32_t> generation_{0};
};

// Called when code was unloaded, because other code may lie there by now. Set by walk.cpp.
using OnUnload = void (*)() noexcept;
inline constinit OnUnload on_unload = nullptr;

inline Modules &modules() noexcept {
    static constinit Modules the_modules;
    return the_modules;
}

} // namespace emm::observe
