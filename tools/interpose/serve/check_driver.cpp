// Checks the driver's file by the rules for plugins, as libemm has them.
#include "../say.h"
#include "../served.h"
#include "dl/trust.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <unistd.h>

extern "C" __attribute__((visibility("default"))) bool
emm_run_check_driver(const char *path, char *ret_problem, size_t size) {
    try {
        std::string lifted;
        const char *const allows = std::getenv("EMM_ALLOW_UNTRUSTED");
        const std::string refusal =
            emm::dl::refusal_of(path, geteuid(), allows && allows == std::string("1"), lifted);
        if (!lifted.empty()) {
            emm::run::say("driver %s: %s; loaded because EMM_ALLOW_UNTRUSTED=1", path,
                          lifted.c_str());
        }
        std::snprintf(ret_problem, size, "no CUDA driver: %s: %s", path, refusal.c_str());
        return refusal.empty();
    } catch (const std::bad_alloc &) {
        std::snprintf(ret_problem, size, "no host memory to check the driver with");
        return false;
    }
}
