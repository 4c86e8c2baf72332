#pragma once

#include <elf.h>

#include <string>

namespace emm::loader {

// Of the e_machine of an ELF file.
#if defined(__x86_64__)
inline constexpr unsigned this_machine = EM_X86_64;
#elif defined(__aarch64__)
inline constexpr unsigned this_machine = EM_AARCH64;
#else
#error "add the ELF machine number of this architecture"
#endif

std::string machine_name(unsigned machine);

} // namespace emm::loader
