#include "loader/machine.h"

#include <fmt/format.h>

namespace emm::loader {

std::string machine_name(unsigned machine) {
    switch (machine) {
    case EM_X86_64:
        return "x86-64";
    case EM_AARCH64:
        return "AArch64";
    case EM_386:
        return "32-bit x86";
    case EM_ARM:
        return "32-bit Arm";
    case EM_PPC64:
        return "PowerPC64";
    case EM_RISCV:
        return "RISC-V";
    default:
        return fmt::format("machine {}", machine);
    }
}

} // namespace emm::loader
