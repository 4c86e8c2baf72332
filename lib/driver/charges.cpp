#include "driver/charges.h"

#include "driver/account.h"

#include <iterator>
#include <new>

namespace emm::driver {

void Charges::forget(const Charge &charge) noexcept {
    const auto count = counts_.find(charge.context);
    if (--count->second == 0) {
        counts_.erase(count);
    }
}

void Charges::attach(Key key, Charge charge) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        uint64_t &count = counts_[charge.context];
        Charge &known = charges_[key];
        count++;
        if (known.id != 0) {
            account_.give(known.id);
            forget(known);
        }
        known = charge;
    } catch (const std::bad_alloc &) {
    }
}

Charges::Charge Charges::detach(Key key) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = charges_.find(key);
    const Charge charge = found == charges_.end() ? Charge() : found->second;
    if (charge.id != 0) {
        charges_.erase(found);
        forget(charge);
    }
    return charge;
}

std::map<Charges::Key, Charges::Charge> Charges::detach_mappings(uint64_t begin, uint64_t size) {
    std::map<Key, Charge> detached;
    const std::lock_guard lock(mutex_);
    for (auto each = charges_.lower_bound({By::mapping, begin});
         each != charges_.end() && each->first.first == By::mapping &&
         each->first.second - begin < size;) {
        forget(each->second);
        detached.insert(charges_.extract(each++));
    }
    return detached;
}

uint64_t Charges::find(Key key) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = charges_.find(key);
    return found == charges_.end() ? 0 : found->second.id;
}

void Charges::end(uint64_t context) noexcept {
    const std::lock_guard lock(mutex_);
    for (auto each = charges_.begin(); each != charges_.end();) {
        const bool ends = each->second.context == context;
        if (ends) {
            account_.give(each->second.id);
        }
        each = ends ? charges_.erase(each) : std::next(each);
    }
    counts_.erase(context);
}

bool Charges::has_any(uint64_t context) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(context);
    return found != counts_.end() && found->second != 0;
}

} // namespace emm::driver
