#include "driver/account.h"

#include "observe/memory_report.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <new>

namespace emm::driver {
namespace {

// What the driver's pools grow by, unless memory is short.
constexpr uint64_t pool_segment = uint64_t(32) << 20;

uint64_t with_segment(uint64_t bytes) {
    return bytes > UINT64_MAX - pool_segment
               ? bytes
               : (bytes + pool_segment - 1) / pool_segment * pool_segment;
}

uint64_t bounded_bytes(const Account::Charge &charge) {
    return is_bounded(charge.kind) ? charge.bytes : 0;
}

constexpr const char *kind_names[kinds] = {"blocks",          "physical memory",  "memory pools",
                                           "arrays",          "mipmapped arrays", "graph nodes",
                                           "external memory", "managed memory",   "pinned memory"};

bool fits(uint64_t bytes, uint64_t used, uint64_t bound) {
    return bound == 0 || (used <= bound && bytes <= bound - used);
}

} // namespace

void Tally::add(uint64_t size) {
    live++;
    made++;
    bytes += size;
    peak_bytes = std::max(peak_bytes, bytes);
}

void Tally::remove(uint64_t size) {
    live--;
    bytes -= size;
}

void Account::set_bound(int32_t device, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    devices_[device].bound = bytes;
}

uint64_t Account::bound(int32_t device) const {
    const std::lock_guard lock(mutex_);
    const auto found = devices_.find(device);
    return found == devices_.end() ? 0 : found->second.bound;
}

Account::Pools Account::pools() const {
    const std::lock_guard lock(mutex_);
    return pools_;
}

uint64_t Account::reserved_on(int32_t device) const {
    uint64_t reserved = 0;
    for (const auto &[pool, charge] : pools()) {
        reserved += charge.device == device ? ask_(pool).reserved : 0;
    }
    return reserved;
}

uint64_t Account::used_now(const Device &its, uint64_t reserved) {
    uint64_t used = reserved + its.pending;
    for (const auto &rows : its.rows) {
        for (size_t kind = 0; kind < kinds; kind++) {
            used += is_bounded(Kind(kind)) ? rows[kind].bytes : 0;
        }
    }
    return used;
}

uint64_t Account::insert(const Charge &charge) {
    const uint64_t id = ++last_id_;
    Device &device = devices_[charge.device];
    items_.emplace(id, Item{charge});
    device.pending += bounded_bytes(charge);
    return id;
}

// Another thread's growth is pending until its pool has been asked again: both hold growth_mutex_.
uint64_t Account::take(const Charge &charge) {
    const uint64_t most = is_bounded(charge.kind) ? bound(charge.device) : 0;
    std::unique_lock growth(growth_mutex_, std::defer_lock);
    uint64_t reserved = 0;
    if (most != 0) {
        growth.lock();
        reserved = reserved_on(charge.device);
    }
    const std::lock_guard lock(mutex_);
    if (most != 0 && !fits(charge.bytes, used_now(devices_[charge.device], reserved), most)) {
        return 0;
    }
    return insert(charge);
}

uint64_t Account::take_growth(uint64_t pool, uint64_t bytes) {
    const Pools known = pools();
    const auto found = known.find(pool);
    Charge growth = found == known.end() ? Charge{-1, Holder::program, Kind::pool} : found->second;
    growth.bytes = bound(growth.device) == 0 ? 0 : with_segment(bytes);
    if (const uint64_t id = take(growth)) {
        return id;
    }
    const PoolFigures its = ask_(pool);
    growth.bytes = 0;
    return its.reserved >= its.used && its.reserved - its.used >= bytes ? take(growth) : 0;
}

bool Account::keep(uint64_t id, uint64_t pool) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = items_.find(id);
    if (found == items_.end() || found->second.references++ != 0) {
        return found != items_.end();
    }
    const Charge &charge = found->second.charge;
    Device &device = devices_[charge.device];
    device.pending -= bounded_bytes(charge);
    device.rows[size_t(charge.holder)][size_t(charge.kind)].add(charge.bytes);
    if (charge.holder == Holder::managers) {
        totals_[charge.kind == Kind::pinned].add(charge.bytes);
    }
    try {
        if (pool != 0) {
            pools_.emplace(found->second.pool = pool, charge);
        }
    } catch (const std::bad_alloc &) { // its reserved bytes are not counted
    }
    return true;
}

// What a call was charged in advance for the growth of a pool.
bool Account::is_growth(uint64_t id) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = items_.find(id);
    return found != items_.end() && found->second.charge.kind == Kind::pool &&
           found->second.references == 0;
}

bool Account::give(uint64_t id, uint64_t *ret_tracked) noexcept {
    std::unique_lock growth(growth_mutex_, std::defer_lock);
    if (is_growth(id)) {
        growth.lock();
    }
    const std::lock_guard lock(mutex_);
    const auto found = items_.find(id);
    if (found == items_.end()) {
        return id == 0;
    }
    const Item item = found->second;
    if (item.references > 1) {
        found->second.references--;
        return true;
    }
    const Charge &charge = item.charge;
    items_.erase(found);
    if (ret_tracked) {
        *ret_tracked = charge.tracked;
    }
    Device &device = devices_[charge.device];
    if (item.references == 0) {
        device.pending -= bounded_bytes(charge);
        return true;
    }
    device.rows[size_t(charge.holder)][size_t(charge.kind)].remove(charge.bytes);
    if (charge.holder == Holder::managers) {
        totals_[charge.kind == Kind::pinned].remove(charge.bytes);
    }
    pools_.erase(item.pool);
    return true;
}

Account::Figures Account::figures(int32_t device) {
    Figures figures;
    uint64_t reserved[holders] = {}, peak[holders] = {};
    const std::lock_guard growth(growth_mutex_);
    for (const auto &[pool, charge] : pools()) {
        const PoolFigures its = charge.device == device ? ask_(pool) : PoolFigures();
        reserved[size_t(charge.holder)] += its.reserved;
        peak[size_t(charge.holder)] += its.peak_reserved;
    }
    const std::lock_guard lock(mutex_);
    const Device &its = devices_[device];
    figures.bound = its.bound;
    for (size_t holder = 0; holder < holders; holder++) {
        std::copy(std::begin(its.rows[holder]), std::end(its.rows[holder]), figures.rows[holder]);
        Tally &pools = figures.rows[holder][size_t(Kind::pool)];
        pools.bytes = reserved[holder];
        pools.peak_bytes = std::max(peak[holder], reserved[holder]);
    }
    figures.used = used_now(its, reserved[0] + reserved[1]);
    return figures;
}

Tally Account::managers_total(bool of_host) const {
    const std::lock_guard lock(mutex_);
    return totals_[of_host];
}

PoolFigures Account::managers_pools() const {
    PoolFigures sum;
    for (const auto &[pool, charge] : pools()) {
        const PoolFigures its = charge.holder == Holder::managers ? ask_(pool) : PoolFigures();
        sum.reserved += its.reserved;
        sum.peak_reserved += its.peak_reserved;
    }
    const std::lock_guard lock(mutex_);
    sum.peak_reserved = std::max(sum.peak_reserved, ended_pools_peak_);
    return sum;
}

void Account::pool_ends(uint64_t pool) {
    const uint64_t peak = ask_(pool).peak_reserved;
    const std::lock_guard lock(mutex_);
    ended_pools_peak_ = std::max(ended_pools_peak_, peak);
}

uint64_t bounded_sum(const Tally (&rows)[kinds]) {
    uint64_t sum = 0;
    for (size_t kind = 0; kind < kinds; kind++) {
        sum += is_bounded(Kind(kind)) ? rows[kind].bytes : 0;
    }
    return sum;
}

std::string limit_text(const Account::Figures &figures) {
    if (figures.bound == 0) {
        return "";
    }
    const auto &managers = figures.rows[size_t(Holder::managers)];
    const auto &program = figures.rows[size_t(Holder::program)];
    std::string text =
        fmt::format("{} of EMM_LIMIT's {} used: managers {}", observe::bytes_text(figures.used),
                    observe::bytes_text(figures.bound), observe::bytes_text(bounded_sum(managers)));
    for (size_t kind = 0; kind < kinds; kind++) {
        if (program[kind].bytes != 0 && is_bounded(Kind(kind))) {
            text += fmt::format(", the program's {} {}", kind_names[kind],
                                observe::bytes_text(program[kind].bytes));
        }
    }
    return text;
}

} // namespace emm::driver
