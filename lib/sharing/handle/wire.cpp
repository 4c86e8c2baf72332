#include "sharing/handle/wire.h"

#include <cstring>

namespace emm::sharing {

Asked what_is_asked(const void *message, long size) noexcept {
    uint32_t magic = 0;
    if (size >= static_cast<long>(sizeof magic)) {
        std::memcpy(&magic, message, sizeof magic);
    }
    return size == static_cast<long>(sizeof(Request)) && magic == wire_magic ? Asked::parts
           : size == static_cast<long>(sizeof(HandleRequest)) && magic == handle_magic
               ? Asked::handle
               : Asked::nothing;
}

bool is_same(const uint8_t (&a)[64], const uint8_t (&b)[64]) noexcept {
    unsigned difference = 0;
    for (size_t i = 0; i < sizeof a; ++i) {
        difference |= static_cast<unsigned>(a[i] ^ b[i]);
    }
    return difference == 0;
}

} // namespace emm::sharing
