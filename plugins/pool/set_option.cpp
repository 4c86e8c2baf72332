// Options that change while the pool serves: max, slack and release_threshold.
#include "manager.h"

#include "slow_call.h"

#include <algorithm>
#include <new>

namespace emm::pool {

// If idle memory must go back, threads keep no blocks: beyond a threshold, or until the held device
// memory fits a lower max.
uint64_t Manager::limit_of_caches(uint64_t of_device) const {
    return options_.release_threshold == UINT64_MAX && of_device <= options_.max
               ? std::min(options_.max, served_.device_bytes)
               : 0;
}

// Idle memory beyond the new values goes back at once; later frees give theirs back as they are
// freed.
emm_status Manager::set_option(const char *key, const char *text) {
    // One call at a time, so nothing else writes the options.
    Options changed = options_.with(key, text);
    {
        const SlowCall call(served_.driver, caches_);
        Lock lock(served_.mutex);
        options_.change_to(changed);
        caches_.set_limit(limit_of_caches(holdings_.of_device()));
        if (pause_.is_open() && holdings_.may_be_too_idle()) {
            try {
                release_idle(lock);
            } catch (const std::bad_alloc &) { // the option has changed: the rest goes later
            }
        }
    }
    check_unlocked();
    return EMM_OK;
}

} // namespace emm::pool
