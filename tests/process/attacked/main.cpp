// Exporters and importers that are attacked, crowded or killed, on the simulated driver or a real
// one: attacked CASE...
//
// EMM_PLUGIN selects the plugin of the memory. A case that the machine or the plugin cannot serve
// is skipped by name.
#include "cases.h"

#include <cstdlib>
#include <cstring>

namespace attacked {

// Without asking a driver, which this process does not have.
bool simulates() {
    const char *const driver = std::getenv("EMM_DRIVER");
    return driver && std::strstr(driver, "sim");
}

namespace {

const share::Case cases[] = {
    {"next-name", guess_next_name},
    {"taken-name", take_another_name},
    {"ended-name", revive_ended},
    {"crowd", import_in_a_crowd},
    {"silent", import_beside_silent},
    {"impatient", import_beside_impatient},
    {"killed", import_from_killed},
    {"lies", import_lies},
    {"sizes", claim_too_much},
    {"parts", claim_too_many_parts},
    {"freed-name", open_freed_name},
    {"no-proc", lack_proc},
    {"no-sockets", lack_sockets},
    {"no-permission", lack_permission},
    {"no-descriptors", lack_descriptors},
    {"unmapped-user", be_an_unmapped_user},
};

} // namespace
} // namespace attacked

int main(int argc, char *argv[]) {
    int passed = 0;
    for (const share::Case &each : attacked::cases) {
        if (share::is_wanted(each, argc, argv)) {
            std::printf("%s ...\n", each.name);
            std::fflush(stdout);
            passed += share::passes(each);
        }
    }
    return passed > 0 ? 0 : 77;
}
