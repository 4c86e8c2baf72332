#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emm::observe {

// A place in the code of a file: a program, a shared library.
struct CodePlace {
    uint32_t module = 0; // its number; 0: code of no file, and `offset` is the address
    uint64_t offset = 0; // from where the file begins to be mapped

    bool operator==(const CodePlace &) const = default;
};

// Where a module's code lies in this process.
struct CodeRange {
    uintptr_t begin = 0, end = 0, base = 0;
    uint32_t module = 0;
    bool is_passing = false; // see is_passing_library
};

// A library that only passes calls on, so that the caller is behind it: emm's own, the CUDA
// runtime, libffi. By its path.
bool is_passing_library(std::string_view path);

// The range that holds `address`, in ranges that are sorted; NULL: none.
const CodeRange *range_around(const std::vector<CodeRange> &ranges, uintptr_t address) noexcept;

// What is loaded, as it was looked at last.
struct CodeMap {
    std::vector<CodeRange> ranges;   // sorted
    uint64_t loads = 0, unloads = 0; // since the process began
    const CodeMap *before = nullptr; // which it has replaced
};

// Where a thread has found an address last: most of what it asks for next lies there too. Trivial,
// as it is used by threads that are ending; initial-exec, because a look at it must not be a
// function call.
struct LastRange {
    const CodeMap *map = nullptr; // in which it was found
    const CodeRange *range = nullptr;
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local LastRange last_range;

// Which file an address belongs to. Readers take no lock and ask the dynamic linker nothing, unless
// the address is not known. A library that was unloaded is noticed when `notice_unloads` is called
// next. Maps that were replaced stay, because a reader may be looking: some 40 bytes for each
// library that was loaded then.
class Modules {
public:
    // NULL: it is in no file. Valid for good, but for `notice_unloads` it is what was loaded then.
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

    // True: since the last time a library was unloaded, and what was known of addresses is old.
    bool notice_unloads() noexcept;

    // Of unloads that were noticed.
    uint32_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }

    // As the dynamic linker knows it, whatever is in it; "" for number 0. Valid for good.
    const std::string &path(uint32_t module) noexcept;

private:
    [[gnu::noinline, gnu::cold]] const CodeRange *find_anew(uintptr_t address) noexcept;

    std::atomic<const CodeMap *> map_{nullptr};
    std::atomic<uint32_t> generation_{0};
};

// Set by walk.cpp: code was unloaded, and other code may lie there by now.
using OnUnload = void (*)() noexcept;
inline constinit OnUnload on_unload = nullptr;

inline Modules &modules() noexcept {
    static constinit Modules the_modules;
    return the_modules;
}

} // namespace emm::observe
