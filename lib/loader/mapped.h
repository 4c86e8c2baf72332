#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emm::loader {

// Memory in which a plugin's static data may lie. Each pointer that a plugin returns is looked up
// here before it is followed. Following a wrong pointer would end the process, or read random
// bytes.
class Mapped {
public:
    struct Range {
        uintptr_t begin = 0, end = 0;
    };

    // The readable segments of the library that holds `code`, and of those that it links.
    static Mapped around(const void *code);

    // Everything readable in the process: a plugin that is linked into the program, or written in
    // another language, may make its table at run time.
    static Mapped everywhere();

    explicit Mapped(std::vector<Range> ranges) : ranges_(std::move(ranges)) {}

    bool holds(const void *from, size_t size) const;

    // The text up to its NUL; empty if the text does not lie here completely.
    std::optional<std::string_view> text(const char *from) const;

private:
    const Range *range_of(const void *from) const;

    std::vector<Range> ranges_;
};

// A library of the process, with the libraries that it links.
struct Library {
    std::string path, soname;
    std::vector<std::string> needed;
    std::vector<Mapped::Range> readable, executable;
};

// Positions of `first` and of all that it needs, directly or not.
std::vector<size_t> linked(const std::vector<Library> &libraries, size_t first);

} // namespace emm::loader
