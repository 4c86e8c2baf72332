#include "nvml/uuid.h"

#include "catch.h"

#include <cstring>
#include <string>

using namespace emm::run;

namespace {

constexpr unsigned char untouched = 0xee;

struct Uuid {
    unsigned char bytes[uuid_bytes + 1];
    Uuid() { std::memset(bytes, untouched, sizeof bytes); }
};

} // namespace

TEST_CASE("NVML's UUID is CUDA's, in hexadecimal digits of either case") {
    for (const char *text :
         {"GPU-00112233-4455-6677-8899-aabbccddeeff", "GPU-00112233-4455-6677-8899-AABBCCDDEEFF",
          "MIG-00112233-4455-6677-8899-aabbccddeeff"}) {
        Uuid uuid;
        CHECK(read_uuid(text, uuid.bytes));
        for (unsigned i = 0; i < uuid_bytes; i++) {
            CHECK(uuid.bytes[i] == 0x11 * i);
        }
        CHECK(uuid.bytes[uuid_bytes] == untouched);
    }
}

TEST_CASE("what is no UUID of a device is refused, and nothing is written") {
    const std::string right = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    std::string texts[] = {"",
                           "GPU-",
                           right + "0",
                           right.substr(0, right.size() - 1),
                           "gpu" + right.substr(3),
                           "MIG-" + right + "/1/0", // before driver 470
                           right,
                           right};
    texts[6][12] = '0'; // where a dash belongs
    texts[7][20] = 'g';
    for (const std::string &text : texts) {
        INFO(text);
        Uuid uuid;
        CHECK_FALSE(read_uuid(text.c_str(), uuid.bytes));
        CHECK(std::memcmp(uuid.bytes, Uuid().bytes, sizeof uuid.bytes) == 0);
    }
}
