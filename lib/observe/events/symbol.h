#pragma once

#include <cstdint>
#include <string>

namespace emm::observe {

// The function of an ELF file that holds `address`, as it is written in source, and how far into it
// that is: "train(Batch const&)+0x42". "" if the file does not tell. Read from the file, not from
// the process: the loader knows exported functions only, and nothing of a process that has ended.
std::string symbol_at(const std::string &path, uint64_t address);

} // namespace emm::observe
