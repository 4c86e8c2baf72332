// Memory pools of the driver's that grow for an allocation.
#include "driver/account.h"

#include <algorithm>
#include <new>

namespace emm::driver {
namespace {

// The driver's pools grow by this many bytes, unless memory is short.
constexpr uint64_t pool_segment = uint64_t(32) << 20;

uint64_t with_segment(uint64_t bytes) {
    return bytes > UINT64_MAX - pool_segment
               ? bytes
               : (bytes + pool_segment - 1) / pool_segment * pool_segment;
}

} // namespace

uint64_t Account::take_growth(uint64_t pool, uint64_t bytes) {
    const Pools known = pools();
    const auto found = known.find(pool);
    if (found == known.end()) {
        return take({-1, Holder::program, Kind::pool});
    }
    Charge growth = found->second.charge;
    growth.tracked = 0; // the number is the pool's
    growth.bytes = bound(growth.device) == 0 ? 0 : with_segment(bytes);
    if (const uint64_t id = take(growth, pool)) {
        const std::lock_guard lock(mutex_);
        if (const auto its = pools_.find(pool); its != pools_.end()) {
            its->second.allowed += std::min(growth.bytes, UINT64_MAX - its->second.allowed);
        }
        return id;
    }
    std::optional<uint64_t> reserved, used;
    {
        const std::lock_guard lock(growth_mutex_);
        reserved = ask(pool, PoolFigure::reserved);
        used = ask(pool, PoolFigure::used);
    }
    if (!reserved || !used || *reserved < *used || *reserved - *used < bytes) {
        return 0;
    }
    growth.bytes = 0;
    const uint64_t id = take(growth, pool);
    const std::lock_guard lock(mutex_);
    if (const auto its = pools_.find(pool); its != pools_.end()) {
        its->second.allowed = std::min(its->second.allowed, *reserved);
    }
    return id;
}

Account::Pool *Account::growing(const Item &item) noexcept {
    const auto pool = item.references == 0 ? pools_.find(item.pool) : pools_.end();
    return pool == pools_.end() ? nullptr : &pool->second;
}

bool Account::may_exceed(uint64_t id) noexcept {
    const std::lock_guard lock(mutex_);
    const auto item = items_.find(id);
    const Pool *const pool = item == items_.end() ? nullptr : growing(item->second);
    return pool && item->second.charge.bytes == 0 && pool->allowed != UINT64_MAX;
}

// Charges of other calls do not count: the pool's figure may have them already.
bool Account::exceeds(uint64_t id) noexcept {
    if (!may_exceed(id)) {
        return false;
    }
    try {
        const uint64_t pool = pool_of(id);
        const Figures now = figures(device_of(pool));
        const bool is_above = now.bound != 0 && now.used - now.pending > now.bound;
        const std::lock_guard lock(mutex_);
        const auto found = pools_.find(pool);
        if (found == pools_.end() || found->second.reserved <= found->second.allowed) {
            return false;
        }
        found->second.allowed = is_above ? found->second.allowed : UINT64_MAX;
        return is_above;
    } catch (const std::bad_alloc &) {
        return false; // the growth stays
    }
}

} // namespace emm::driver
