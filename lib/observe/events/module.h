#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emm::observe {

// A program or library, with its place in this process, or in one that has ended.
struct Module {
    uint64_t begin = 0, end = 0; // addresses
    uint64_t base = 0;           // the difference to an address in the file
    std::string path;

    bool holds(uint64_t address) const noexcept { return address - begin < end - begin; }
};

// A module as one line, and back. take_module takes a line from the front of `text`; empty if the
// line is malformed.
std::string to_line(const Module &module);
std::optional<Module> take_module(std::string_view &text);

// The function of an ELF file that holds `address`, as written in source, and the offset in it:
// "train(Batch const&)+0x42". "" if the file does not tell. Reads the file, not the process: the
// dynamic linker knows exported functions only, and nothing of a process that has ended.
std::string symbol_at(const std::string &path, uint64_t address);

} // namespace emm::observe
