#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

// The memory of each device that this process has taken from the driver, by holder and kind, and
// each device's bound (EMM_LIMIT). The account calls no driver: its users report what a call is
// about to take, and whether the call succeeded. Any thread may call.
namespace emm::driver {

// Memory that counts against a device's bound and is in no row of this account.
struct Others {
    uint64_t processes = 0; // of processes that share the budget, with their reserves
    uint64_t copies = 0;    // of other copies of libemm in this process (copies.h)
    uint64_t sum() const { return processes + copies; }
};

// This process's part in a bound that others share. The account's lock is held.
class Share {
public:
    virtual ~Share() = default;
    // Whether this account may have that many bytes in all. `takes_reserve`: more may be taken, for
    // later.
    virtual bool cover(uint64_t bytes, bool takes_reserve = true) noexcept = 0;
    // Gives back bytes that are held and not used: all of them, or all but a reserve.
    virtual void return_unused(uint64_t used, bool keeps_reserve) noexcept = 0;
    // The driver has given this account so many bytes in total: a pool of CUDA's may have grown
    // beyond the bound.
    virtual void count(uint64_t) noexcept {}
    virtual uint64_t bound() const noexcept = 0;
    virtual void set_bound(uint64_t) noexcept {}
    virtual Others others() noexcept = 0;
};

enum class Holder : uint8_t { managers, program };
constexpr size_t holders = 2;

// In the order of emm_memory_kind.
enum class Kind : uint8_t {
    block,
    physical,
    pool, // its figures are the driver's
    array,
    mipmapped_array,
    graph_node,
    external,
    managed,
    pinned,
};
constexpr size_t kinds = 9;

// Kinds that count against a device's bound. Pinned and managed memory have rows of their own, and
// external memory is another API's.
constexpr bool is_bounded(Kind kind) {
    return kind < Kind::external;
}

// The bytes that the driver takes for an allocation. It packs small blocks at 512 bytes, and takes
// whole pages of 2 MiB for others.
constexpr uint64_t device_granules(uint64_t bytes) {
    constexpr uint64_t small_granule = 512, page = uint64_t(2) << 20, small_limit = page / 2;
    const uint64_t granule = bytes < small_limit ? small_granule : page;
    return bytes > UINT64_MAX - granule ? bytes : (bytes + granule - 1) / granule * granule;
}

struct Tally {
    uint64_t live = 0;  // number of live allocations
    uint64_t bytes = 0; // their total size
    uint64_t peak_bytes = 0;
    uint64_t made = 0; // number ever made

    void add(uint64_t size);
    void remove(uint64_t size);
};

enum class PoolFigure : uint8_t { reserved, used };

class Account {
public:
    struct Charge {
        int32_t device = -1; // -1: no device
        Holder holder = Holder::managers;
        Kind kind = Kind::block;
        uint64_t bytes = 0;   // 0 for a pool
        uint64_t tracked = 0; // the caller's own number of it
    };

    // `ask` asks the driver about a pool; no lock that give() takes is held. Empty: the driver does
    // not tell.
    using AskPool = std::optional<uint64_t> (*)(uint64_t pool, PoolFigure which);
    explicit Account(AskPool ask) : ask_(ask) {}

    void set_bound(int32_t device, uint64_t bytes); // 0: none
    // From now on the bound belongs to a budget that processes share (shared_group.h), or to
    // another copy's account (copies.h).
    void set_share(int32_t device, Share *share);
    void give_back_reserves(); // returns unused bytes of shared budgets
    // False: gives the reserves back, and keeps none until the next call. At first true.
    void keep_reserves(bool keeps);
    uint64_t bound(int32_t device) const;

    // For another copy of libemm that counts here: whether it may have `bytes` in total on a
    // device, what it uses, and what counts besides.
    bool cover(uint64_t copy, int32_t device, uint64_t bytes) noexcept;
    void return_unused(uint64_t copy, int32_t device, uint64_t used, bool keeps_reserve) noexcept;
    Others others_of(uint64_t copy, int32_t device) noexcept;
    // Asks the driver again for the sizes of the device's pools, which may have become smaller.
    void refresh(int32_t device) noexcept;
    // Sets the function that asks the other copies for the same.
    void on_refresh(void (*refresh)(int32_t device) noexcept) { refresh_copies_ = refresh; }

    // Called before the driver is asked: the charge counts from now on. Returns its id; 0: the
    // bound leaves no room. Throws std::bad_alloc.
    uint64_t take(const Charge &charge) { return take(charge, 0); }

    // The same for an allocation of `bytes` from a pool, which may have to grow for it. The caller
    // gives the charge back after the call; from then on the pool's own figures count. An unknown
    // pool counts as no device memory of this process.
    // The bound refuses no allocation that fits into the pool's idle memory.
    uint64_t take_growth(uint64_t pool, uint64_t bytes);
    // Whether the pool has grown above the bound although the allocation fits into its idle memory:
    // another stream may still use that memory. Ask after the driver's call. If so, free the
    // allocation and trim the pool. Until the growth has gone, the answer for the pool stays yes.
    bool exceeds(uint64_t id) noexcept;
    bool may_exceed(uint64_t id) noexcept;  // asks no driver
    int32_t device_of(uint64_t pool) const; // -1: not known

    // Called when the call has succeeded; each further call adds a reference. `pool`: the handle of
    // the pool that was made. False: there is no such id.
    bool keep(uint64_t id, uint64_t pool = 0) noexcept;

    // Drops a reference. The charge ends with the last one, or at once if it has none. False: there
    // is no such id. Id 0 does nothing. When the charge ends, `ret_tracked`, which may be NULL,
    // gets its number.
    bool give(uint64_t id, uint64_t *ret_tracked = nullptr) noexcept;

    struct Figures {
        uint64_t bound = 0;   // 0: none
        uint64_t used = 0;    // bytes that count against it
        Others others;        // of `used`
        uint64_t pending = 0; // of `used`: charges of calls that are under way
        Tally rows[holders][kinds];
    };
    Figures figures(int32_t device);
    uint64_t used(int32_t device) { return figures(device).used; }

    // Lowers the driver's figures for the device to its bound, and to what the bound leaves.
    void bound_figures(int32_t device, size_t *free, size_t *total);

    // On all devices: memory that managers have taken outside their pools, and the bytes and peaks
    // of memory that their pools have reserved.
    Tally managers_total(bool of_host) const;
    Tally managers_pools();

    // Reserved bytes of the device's tracked pools. The key is the number that the caller gave.
    std::map<uint64_t, uint64_t> tracked_pools(int32_t device);

    // Called before the driver destroys the pool. If the driver refuses, the pool counts with its
    // present size, because no manager takes from it any more.
    void pool_ends(uint64_t pool);

private:
    struct Item {
        Charge charge;
        unsigned references = 0; // 0: the call is under way
        uint64_t pool = 0;       // the pool that was made, or may grow during the call
    };
    struct Device {
        uint64_t bound = 0, pending = 0;
        Share *share = nullptr;              // NULL: no one shares the bound
        std::map<uint64_t, uint64_t> copies; // bytes that other copies have taken
        Tally rows[holders][kinds]; // of pools: their peak, as all were reported at one time
    };
    struct Pool {
        Charge charge;
        uint64_t reserved = 0; // as last reported
        // A growth to more than this was not charged.
        uint64_t allowed = UINT64_MAX;
        bool has_ended = false; // the driver has refused to destroy it: its memory stays
    };
    using Pools = std::map<uint64_t, Pool>; // by handle

    Pools pools() const;
    bool has_new_peak(int32_t device) const; // as far as pools have been asked
    // growth_mutex_ is held for these three.
    void ask_reserved(uint64_t pool);
    void refresh_pool(uint64_t pool) noexcept;
    void refresh_all(int32_t device);
    void refresh_with_copies(int32_t device);
    uint64_t take(const Charge &charge, uint64_t growing);
    uint64_t try_take(const Charge &charge, uint64_t growing);
    bool keep_charge(uint64_t id, uint64_t pool) noexcept;
    uint64_t pool_of(uint64_t id) const noexcept;
    std::optional<uint64_t> ask(uint64_t pool, PoolFigure which) const;
    // The mutex is held for these six.
    Pool *growing(const Item &item) noexcept; // the pool that the call may let grow, or NULL
    uint64_t reserved_now(int32_t device, Holder holder) const;
    void raise_peaks(int32_t device, Device &its) const;
    uint64_t used_now(int32_t device);
    bool has_room(int32_t device, const Device &its, uint64_t bytes);
    void return_unused_share(int32_t device, const Device &its, bool keeps_reserve);

    const AskPool ask_;
    std::atomic<void (*)(int32_t device) noexcept> refresh_copies_{nullptr};
    std::mutex growth_mutex_;  // locked before mutex_, while pools are asked
    mutable std::mutex mutex_; // guards all members below
    std::map<int32_t, Device> devices_;
    std::map<uint64_t, Item> items_; // by id
    Pools pools_;
    uint64_t last_id_ = 0;
    bool keeps_reserves_ = true;
    Tally totals_[2]; // of managers: device, host
};

// The sum that counts against a bound.
uint64_t bounded_sum(const Tally (&rows)[kinds]);

// Each kind with any memory: "blocks 6.00 GiB, arrays 2.00 GiB", with `before` before each. If
// `bounded`, kinds that no bound covers are left out.
std::string kinds_text(const Tally (&rows)[kinds], std::string_view before, bool bounded);

// "8.00 GiB of EMM_LIMIT's 8.00 GiB used: managers' blocks 6.00 GiB, the program's physical memory
// 2.00 GiB". "": the device has no bound.
std::string limit_text(const Account::Figures &figures);

// The account of the process.
Account &account();

} // namespace emm::driver
