#include "exchange/kineto.h"
#include "recording_fuzz.h"

using namespace emm::tool;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t at = 0;
    const auto source = [&](char *into, size_t most) {
        const size_t count = std::min(most, size - at);
        std::copy_n(data + at, count, into);
        at += count;
        return count;
    };
    convert_or_refuse([&] { return std::make_unique<KinetoTrace>(source, "some", std::nullopt); });
    return 0;
}
