#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emm::loader {

// Memory in which a plugin's static data may lie. What a plugin returns is looked up here before it
// is followed: a pointer to anywhere else would end the process, or describe by what happens to be
// there.
class Mapped {
public:
    struct Range {
        uintptr_t begin = 0, end = 0;
    };

    // The readable segments of the library that holds `code`, and of those that it links.
    static Mapped around(const void *code);

    // All that can be read in the process: a plugin that is linked into the program, or written in
    // another language, may make its table at run time.
    static Mapped everywhere();

    explicit Mapped(std::vector<Range> ranges) : ranges_(std::move(ranges)) {}

    bool holds(const void *from, size_t size) const;

    // Up to the NUL that ends it; none if it does not lie here with its end.
    std::optional<std::string_view> text(const char *from) const;

private:
    const Range *range_of(const void *from) const;

    std::vector<Range> ranges_;
};

// A library of the process, as far as it matters who links whom.
struct Library {
    std::string path, soname;
    std::vector<std::string> needed;
    std::vector<Mapped::Range> readable, executable;
};

// Positions of `first` and of all that it needs, directly or not.
std::vector<size_t> linked(const std::vector<Library> &libraries, size_t first);

} // namespace emm::loader
