// Any EMM_SIM is either a machine within its limits, or is refused in a sentence.
#include "entries.h"
#include "file.h"
#include "options.h"

// The table of the entries would need the whole driver.
bool simcuda::is_entry(std::string_view name) {
    return name.substr(0, 2) == "cu";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string text(reinterpret_cast<const char *>(data), size);
    simcuda::Options options;
    const std::string complaint = simcuda::read_options(text.c_str(), options);
    require(!complaint.empty() || (options.devices > 0 && options.memory > 0),
            "an accepted machine has a device with memory");
    return 0;
}
