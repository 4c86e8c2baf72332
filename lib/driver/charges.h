#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace emm::driver {

class Account;

constexpr uint64_t no_context = UINT64_MAX; // no cuCtxGetId

// Maps a manager's addresses and handles to what the account was charged for them. Any thread may
// call.
class Charges {
public:
    enum class By : uint8_t { address, handle, pool, mapping, host };
    using Key = std::pair<By, uint64_t>;
    struct Charge {
        uint64_t id = 0;               // of the account; 0: none
        uint64_t context = no_context; // the context with which the memory ends
    };

    explicit Charges(Account &account) : account_(account) {}

    // If the host has no memory to remember the key, the charge stays permanently. An older charge
    // under the same key ended with its context: the driver has handed the key out again.
    void attach(Key key, Charge charge) noexcept;

    // Before the driver gets the memory back: then another thread may get it. Id 0: unknown key.
    Charge detach(Key key) noexcept;
    std::map<Key, Charge> detach_mappings(uint64_t begin, uint64_t size);

    uint64_t find(Key key) const noexcept; // the id

    // The context has ended: all its charges leave the account.
    void end(uint64_t context) noexcept;
    bool has_any(uint64_t context) const noexcept;

private:
    void forget(const Charge &charge) noexcept; // the mutex is held

    Account &account_;
    mutable std::mutex mutex_; // guards the members below
    std::map<Key, Charge> charges_;
    std::map<uint64_t, uint64_t> counts_; // of charges, by context
};

} // namespace emm::driver
