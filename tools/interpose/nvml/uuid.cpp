#include "uuid.h"

#include <string.h>

namespace emm::run {
namespace {

// 16: no hexadecimal digit
unsigned digit(char c) {
    return c >= '0' && c <= '9'   ? unsigned(c - '0')
           : c >= 'a' && c <= 'f' ? unsigned(c - 'a') + 10
           : c >= 'A' && c <= 'F' ? unsigned(c - 'A') + 10
                                  : 16;
}

} // namespace

bool read_uuid(const char *text, unsigned char *ret_uuid) {
    constexpr char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if ((strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0) ||
        strlen(text + 4) != sizeof form - 1) {
        return false;
    }
    unsigned char digits[2 * uuid_bytes];
    size_t count = 0;
    for (size_t i = 0; i < sizeof form - 1; i++) {
        const char c = text[4 + i];
        if (form[i] == '-' ? c != '-' : digit(c) > 15) {
            return false;
        }
        if (form[i] != '-') {
            digits[count++] = static_cast<unsigned char>(digit(c));
        }
    }
    for (size_t i = 0; i < uuid_bytes; i++) {
        ret_uuid[i] = static_cast<unsigned char>(digits[2 * i] << 4 | digits[2 * i + 1]);
    }
    return true;
}

} // namespace emm::run
