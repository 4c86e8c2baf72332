#include "exchange/rmm_log.h"
#include "recording_fuzz.h"

using namespace emm::tool;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const MemoryFile file(data, size);
    convert_or_refuse([&] { return std::make_unique<RmmLog>(file.path(), "some"); });
    return 0;
}
