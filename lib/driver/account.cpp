#include "driver/account.h"

#include "observe/text.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

namespace emm::driver {
namespace {

uint64_t bounded_bytes(const Account::Charge &charge) {
    return is_bounded(charge.kind) ? charge.bytes : 0;
}

constexpr const char *kind_names[kinds] = {"blocks",          "physical memory",  "memory pools",
                                           "arrays",          "mipmapped arrays", "graph nodes",
                                           "external memory", "managed memory",   "pinned memory"};

bool fits(uint64_t bytes, uint64_t used, uint64_t bound) {
    return bound == 0 || bytes == 0 || (used <= bound && bytes <= bound - used);
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
    Device &its = devices_[device];
    its.bound = bytes;
    if (its.share) {
        its.share->set_bound(bytes);
    }
}

uint64_t Account::bound(int32_t device) const {
    const std::lock_guard lock(mutex_);
    const auto found = devices_.find(device);
    if (found == devices_.end()) {
        return 0;
    }
    return found->second.share ? found->second.share->bound() : found->second.bound;
}

void Account::set_share(int32_t device, Share *share) {
    const std::lock_guard lock(mutex_);
    devices_[device].share = share;
}

void Account::give_back_reserves() {
    const std::lock_guard lock(mutex_);
    for (const auto &[device, its] : devices_) {
        return_unused_share(device, its, false);
    }
}

void Account::keep_reserves(bool keeps) {
    const std::lock_guard lock(mutex_);
    keeps_reserves_ = keeps;
    for (const auto &[device, its] : devices_) {
        return_unused_share(device, its, keeps);
    }
}

bool Account::has_room(int32_t device, const Device &its, uint64_t bytes) {
    const uint64_t used = used_now(device);
    return its.share && bytes != 0
               ? bytes <= UINT64_MAX - used && its.share->cover(used + bytes, keeps_reserves_)
               : fits(bytes, used, its.bound);
}

void Account::return_unused_share(int32_t device, const Device &its, bool keeps_reserve) {
    if (its.share) {
        const uint64_t used = used_now(device);
        its.share->return_unused(used, keeps_reserve);
        its.share->count(used - its.pending); // pending bytes may already be in a pool's figure
    }
}

bool Account::cover(uint64_t copy, int32_t device, uint64_t bytes) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        Device &its = devices_[device];
        uint64_t &taken = its.copies[copy];
        if (bytes > taken && !has_room(device, its, bytes - taken)) {
            return false;
        }
        taken = bytes;
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

void Account::return_unused(uint64_t copy, int32_t device, uint64_t used,
                            bool keeps_reserve) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = devices_.find(device);
    if (found != devices_.end() && found->second.copies.count(copy) != 0) {
        found->second.copies[copy] = used;
        return_unused_share(device, found->second, keeps_reserve && keeps_reserves_);
    }
}

Others Account::others_of(uint64_t copy, int32_t device) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = devices_.find(device);
    if (found == devices_.end()) {
        return {};
    }
    Device &its = found->second;
    const auto own = its.copies.find(copy);
    return {its.share ? its.share->others().processes : 0,
            used_now(device) - (own == its.copies.end() ? 0 : own->second)};
}

void Account::refresh(int32_t device) noexcept {
    try {
        {
            const std::lock_guard growth(growth_mutex_);
            refresh_all(device);
        }
        const std::lock_guard lock(mutex_);
        return_unused_share(device, devices_[device], keeps_reserves_);
    } catch (const std::bad_alloc &) { // the pools keep their last figures
    }
}

Account::Pools Account::pools() const {
    const std::lock_guard lock(mutex_);
    return pools_;
}

// The caller holds growth_mutex_. The end of a pool waits for that mutex, because an ended pool
// must not be asked.
std::optional<uint64_t> Account::ask(uint64_t pool, PoolFigure which) const {
    {
        const std::lock_guard lock(mutex_);
        const auto found = pools_.find(pool);
        if (found == pools_.end() || found->second.has_ended) {
            return std::nullopt;
        }
    }
    return ask_(pool, which);
}

// If the driver tells no figure now, the pool keeps its last one. The caller holds growth_mutex_,
// so that the later of two answers stays.
void Account::ask_reserved(uint64_t pool) {
    const std::optional<uint64_t> told = ask(pool, PoolFigure::reserved);
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(pool);
    if (told && found != pools_.end()) {
        found->second.reserved = *told;
    }
}

bool Account::has_new_peak(int32_t device) const {
    const std::lock_guard lock(mutex_);
    const auto &rows = devices_.at(device).rows;
    const auto exceeds = [&](Holder holder) {
        return reserved_now(device, holder) > rows[size_t(holder)][size_t(Kind::pool)].peak_bytes;
    };
    return exceeds(Holder::managers) || exceeds(Holder::program);
}

// The other pools may have become smaller since the last look, so a new peak counts only once all
// have been asked.
void Account::refresh_pool(uint64_t pool) noexcept {
    ask_reserved(pool);
    try {
        if (const int32_t device = device_of(pool); device >= 0 && has_new_peak(device)) {
            refresh_all(device);
        }
    } catch (const std::bad_alloc &) { // the peak stays as it is
    }
}

void Account::refresh_all(int32_t device) {
    for (const auto &[handle, pool] : pools()) {
        if (pool.charge.device == device) {
            ask_reserved(handle);
        }
    }
    const std::lock_guard lock(mutex_);
    raise_peaks(device, devices_[device]);
}

void Account::raise_peaks(int32_t device, Device &its) const {
    for (size_t holder = 0; holder < holders; holder++) {
        uint64_t &peak = its.rows[holder][size_t(Kind::pool)].peak_bytes;
        peak = std::max(peak, reserved_now(device, Holder(holder)));
    }
}

// While the other copies look, none of this account's locks is held.
void Account::refresh_with_copies(int32_t device) {
    {
        const std::lock_guard growth(growth_mutex_);
        refresh_all(device);
    }
    if (const auto refresh_copies = refresh_copies_.load()) {
        refresh_copies(device);
    }
}

uint64_t Account::reserved_now(int32_t device, Holder holder) const {
    uint64_t sum = 0;
    for (const auto &[handle, pool] : pools_) {
        sum += pool.charge.device == device && pool.charge.holder == holder ? pool.reserved : 0;
    }
    return sum;
}

uint64_t Account::used_now(int32_t device) {
    const Device &its = devices_[device];
    uint64_t used = its.pending;
    for (const auto &rows : its.rows) {
        for (size_t kind = 0; kind < kinds; kind++) {
            used += is_bounded(Kind(kind)) ? rows[kind].bytes : 0;
        }
    }
    used += reserved_now(device, Holder::managers) + reserved_now(device, Holder::program);
    for (const auto &[copy, bytes] : its.copies) {
        used += bytes;
    }
    return used;
}

uint64_t Account::try_take(const Charge &charge, uint64_t growing) {
    const std::lock_guard lock(mutex_);
    Device &device = devices_[charge.device];
    const uint64_t bytes = bounded_bytes(charge);
    if (is_bounded(charge.kind) && !has_room(charge.device, device, bytes)) {
        return 0;
    }
    items_.emplace(last_id_ + 1, Item{charge, 0, growing});
    device.pending += bytes;
    return ++last_id_;
}

// Pools may have become smaller since the last look; only take_growth lets them grow.
uint64_t Account::take(const Charge &charge, uint64_t growing) {
    if (const uint64_t id = try_take(charge, growing)) {
        return id;
    }
    refresh_with_copies(charge.device);
    return try_take(charge, growing);
}

int32_t Account::device_of(uint64_t pool) const {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(pool);
    return found == pools_.end() ? -1 : found->second.charge.device;
}

// By now the pool may have reserved memory.
bool Account::keep(uint64_t id, uint64_t pool) noexcept {
    const bool is_known = keep_charge(id, pool);
    if (pool != 0) {
        const std::lock_guard growth(growth_mutex_);
        refresh_pool(pool);
    }
    return is_known;
}

bool Account::keep_charge(uint64_t id, uint64_t pool) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = items_.find(id);
    if (found == items_.end() || growing(found->second) || found->second.references++ != 0) {
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
            pools_.emplace(found->second.pool = pool, Pool{charge});
        }
    } catch (const std::bad_alloc &) { // its reserved bytes are not counted
    }
    return true;
}

// The pool of a charge: the one that was made, or that the call may have let grow. 0: none.
uint64_t Account::pool_of(uint64_t id) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = items_.find(id);
    return found == items_.end() ? 0 : found->second.pool;
}

bool Account::give(uint64_t id, uint64_t *ret_tracked) noexcept {
    std::unique_lock growth(growth_mutex_, std::defer_lock);
    if (const uint64_t pool = pool_of(id)) {
        growth.lock();
        refresh_pool(pool);
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
        return_unused_share(charge.device, device, keeps_reserves_);
        return true;
    }
    device.rows[size_t(charge.holder)][size_t(charge.kind)].remove(charge.bytes);
    if (charge.holder == Holder::managers) {
        totals_[charge.kind == Kind::pinned].remove(charge.bytes);
    }
    pools_.erase(item.pool);
    return_unused_share(charge.device, device, keeps_reserves_);
    return true;
}

Account::Figures Account::figures(int32_t device) {
    refresh_with_copies(device);
    Figures figures;
    const std::lock_guard lock(mutex_);
    const Device &its = devices_[device];
    figures.bound = its.share ? its.share->bound() : its.bound;
    figures.others = its.share ? its.share->others() : Others();
    figures.used = used_now(device) + figures.others.sum();
    figures.pending = its.pending;
    for (const auto &[copy, bytes] : its.copies) {
        figures.others.copies += bytes;
    }
    for (size_t holder = 0; holder < holders; holder++) {
        std::copy(std::begin(its.rows[holder]), std::end(its.rows[holder]), figures.rows[holder]);
        figures.rows[holder][size_t(Kind::pool)].bytes += reserved_now(device, Holder(holder));
    }
    return figures;
}

std::map<uint64_t, uint64_t> Account::tracked_pools(int32_t device) {
    {
        const std::lock_guard growth(growth_mutex_);
        refresh_all(device);
    }
    std::map<uint64_t, uint64_t> reserved;
    const std::lock_guard lock(mutex_);
    for (const auto &[handle, pool] : pools_) {
        if (pool.charge.device == device && pool.charge.tracked != 0) {
            reserved[pool.charge.tracked] = pool.reserved;
        }
    }
    return reserved;
}

void Account::bound_figures(int32_t device, size_t *free, size_t *total) {
    const Figures its = figures(device);
    if (its.bound == 0) {
        return;
    }
    if (free) {
        *free = std::min<uint64_t>(*free, its.bound > its.used ? its.bound - its.used : 0);
    }
    if (total) {
        *total = std::min<uint64_t>(*total, its.bound);
    }
}

Tally Account::managers_total(bool of_host) const {
    const std::lock_guard lock(mutex_);
    return totals_[of_host];
}

Tally Account::managers_pools() {
    const std::lock_guard growth(growth_mutex_);
    for (const auto &[handle, pool] : pools()) {
        ask_reserved(handle);
    }
    Tally sum;
    const std::lock_guard lock(mutex_);
    for (auto &[device, its] : devices_) {
        raise_peaks(device, its);
        sum.bytes += reserved_now(device, Holder::managers);
        sum.peak_bytes += its.rows[size_t(Holder::managers)][size_t(Kind::pool)].peak_bytes;
    }
    return sum;
}

void Account::pool_ends(uint64_t pool) {
    const std::lock_guard growth(growth_mutex_);
    refresh_pool(pool);
    const std::lock_guard lock(mutex_);
    if (const auto found = pools_.find(pool); found != pools_.end()) {
        found->second.has_ended = true;
    }
}

uint64_t bounded_sum(const Tally (&rows)[kinds]) {
    uint64_t sum = 0;
    for (size_t kind = 0; kind < kinds; kind++) {
        sum += is_bounded(Kind(kind)) ? rows[kind].bytes : 0;
    }
    return sum;
}

std::string kinds_text(const Tally (&rows)[kinds], std::string_view before, bool bounded) {
    std::string text;
    for (size_t kind = 0; kind < kinds; kind++) {
        if (rows[kind].bytes != 0 && (is_bounded(Kind(kind)) || !bounded)) {
            text += fmt::format("{}{}{} {}", text.empty() ? "" : ", ", before, kind_names[kind],
                                observe::bytes_text(rows[kind].bytes));
        }
    }
    return text;
}

std::string limit_text(const Account::Figures &figures) {
    if (figures.bound == 0) {
        return "";
    }
    std::vector<std::string> parts = {
        kinds_text(figures.rows[size_t(Holder::managers)], "managers' ", true),
        kinds_text(figures.rows[size_t(Holder::program)], "the program's ", true)};
    if (figures.others.copies != 0) {
        parts.push_back("another copy of libemm " + observe::bytes_text(figures.others.copies));
    }
    if (figures.others.processes != 0) {
        parts.push_back("other processes of EMM_LIMIT_SHARED " +
                        observe::bytes_text(figures.others.processes));
    }
    std::string text = fmt::format("{} of EMM_LIMIT's {} used", observe::bytes_text(figures.used),
                                   observe::bytes_text(figures.bound));
    const char *separator = ": ";
    for (const std::string &part : parts) {
        text += part.empty() ? "" : std::exchange(separator, ", ") + part;
    }
    return text;
}

} // namespace emm::driver
