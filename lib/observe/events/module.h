#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emm::observe {

// A program or library where it lies in this process, or lay in one that has ended.
struct Module {
    uint64_t begin = 0, end = 0; // addresses
    uint64_t base = 0;           // what is added to an address in the file
    std::string path;

    bool holds(uint64_t address) const noexcept { return address - begin < end - begin; }
};

// One line, and back. The second takes a line from the front of `text`; none if it is malformed.
std::string to_line(const Module &module);
std::optional<Module> take_module(std::string_view &text);

// The function of an ELF file that holds `address`, as it is written in source, and how far into it
// that is: "train(Batch const&)+0x42". "" if the file does not tell. Read from the file, not from
// the process: the loader knows exported functions only, and nothing of a process that has ended.
std::string symbol_at(const std::string &path, uint64_t address);

} // namespace emm::observe
