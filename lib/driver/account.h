#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

// What of each device's memory this process has taken from the driver, by holder and by kind, and
// the bound of each device (EMM_LIMIT). It knows no driver: its users say what a call is about to
// take, and whether that has succeeded. Any thread may call.
namespace emm::driver {

// What counts against a device's bound and is in no row of this account.
struct Others {
    uint64_t processes = 0; // of a budget that processes share, with their reserves
    uint64_t copies = 0;    // of libemm in this process (copies.h)
    uint64_t sum() const { return processes + copies; }
};

// A part in a bound that others have parts in, too. The account's lock is held.
class Share {
public:
    virtual ~Share() = default;
    // Whether this account may have so many bytes, in all.
    virtual bool cover(uint64_t bytes) noexcept = 0;
    // Bytes that it has and does not use go back: all of them, or all but a reserve.
    virtual void settle(uint64_t used, bool keeps_reserve) noexcept = 0;
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
    pool, // bytes: as the driver says
    array,
    mipmapped_array,
    graph_node,
    external,
    managed,
    pinned,
};
constexpr size_t kinds = 9;

// Device memory that this process takes of the device: pinned and managed memory have rows of their
// own, and external memory is another API's.
constexpr bool is_bounded(Kind kind) {
    return kind < Kind::external;
}

// The driver's bytes for an allocation: it packs small blocks at 512 bytes, and takes whole pages
// of 2 MiB for the others.
constexpr uint64_t device_granules(uint64_t bytes) {
    constexpr uint64_t small_granule = 512, page = uint64_t(2) << 20, small_limit = page / 2;
    const uint64_t granule = bytes < small_limit ? small_granule : page;
    return bytes > UINT64_MAX - granule ? bytes : (bytes + granule - 1) / granule * granule;
}

struct Tally {
    uint64_t live = 0;  // how many there are
    uint64_t bytes = 0; // and how large they are together
    uint64_t peak_bytes = 0;
    uint64_t made = 0; // how many there ever were

    void add(uint64_t size);
    void remove(uint64_t size);
};

enum class PoolFigure : uint8_t { reserved, used, peak_reserved };

class Account {
public:
    struct Charge {
        int32_t device = -1; // -1: of none
        Holder holder = Holder::managers;
        Kind kind = Kind::block;
        uint64_t bytes = 0;   // 0 of a pool
        uint64_t tracked = 0; // the caller's own number of it
    };

    // `ask` asks the driver about a pool, with no lock held that give() takes; none: the driver
    // does not tell.
    using AskPool = std::optional<uint64_t> (*)(uint64_t pool, PoolFigure which);
    explicit Account(AskPool ask) : ask_(ask) {}

    void set_bound(int32_t device, uint64_t bytes); // 0: none
    // From now on the bound is that of a budget that processes share (shared_group.h), or of
    // another copy's account (copies.h).
    void set_share(int32_t device, Share *share);
    void give_back_reserves(); // what it has of such budgets and does not use
    uint64_t bound(int32_t device) const;

    // For a further copy of libemm that counts here: what it has taken of a device in all, whether
    // it may have so much, and what counts beside that.
    bool cover(uint64_t copy, int32_t device, uint64_t bytes) noexcept;
    void settle(uint64_t copy, int32_t device, uint64_t used, bool keeps_reserve) noexcept;
    Others others_of(uint64_t copy, int32_t device) noexcept;
    // Asks the driver for the sizes of the device's pools again: they may have become smaller.
    void refresh(int32_t device) noexcept;
    // What asks the same of the other copies.
    void on_refresh(void (*refresh)(int32_t device) noexcept) { refresh_copies_ = refresh; }

    // Before the driver is asked: the id of the charge; 0: the bound leaves no room. It counts from
    // now on. Throws std::bad_alloc.
    uint64_t take(const Charge &charge) { return take(charge, 0); }

    // The same for an allocation of `bytes` from a pool, which the pool may have to grow for. Given
    // back after the call, when the pool's own figures tell. A pool that is not known is no device
    // memory of this process.
    uint64_t take_growth(uint64_t pool, uint64_t bytes);
    int32_t device_of(uint64_t pool) const; // -1: it is not known

    // The call has succeeded; each further time is one reference more. `pool`: the handle of the
    // pool that was made. False: there is no such id.
    bool keep(uint64_t id, uint64_t pool = 0) noexcept;

    // Drops a reference. The charge ends with the last one, or at once if it has none. False: there
    // is no such id. Id 0 is accepted and does nothing. `ret_tracked`, which may be NULL, gets the
    // charge's number when the charge ends.
    bool give(uint64_t id, uint64_t *ret_tracked = nullptr) noexcept;

    struct Figures {
        uint64_t bound = 0; // 0: none
        uint64_t used = 0;  // what counts against it
        Others others;      // of that
        Tally rows[holders][kinds];
    };
    Figures figures(int32_t device);
    uint64_t used(int32_t device) { return figures(device).used; }

    // Lowers the driver's figures for the device to its bound, and to what the bound leaves.
    void bound_figures(int32_t device, size_t *free, size_t *total);

    // Of all devices: what managers have taken beside their pools, and what those have reserved.
    Tally managers_total(bool of_host) const;
    uint64_t managers_pools(PoolFigure which);

    // Reserved bytes of the device's tracked pools. The key is the number that the caller gave.
    std::map<uint64_t, uint64_t> tracked_pools(int32_t device);

    // Before the driver is asked: its highest figure is remembered. If the driver refuses, the
    // pool counts as it is now: no manager takes from it any more.
    void pool_ends(uint64_t pool);
    // The same where its manager has that figure begin anew: this account's goes on.
    void keep_pool_peak(uint64_t pool);

private:
    struct Item {
        Charge charge;
        unsigned references = 0; // 0: the call is not over
        uint64_t pool = 0;       // that was made, or may grow during the call
    };
    struct Device {
        uint64_t bound = 0, pending = 0;
        Share *share = nullptr;              // NULL: the bound is the account's own
        std::map<uint64_t, uint64_t> copies; // what others have taken
        Tally rows[holders][kinds];
    };
    struct Pool {
        Charge charge;
        uint64_t reserved = 0;  // as last told
        uint64_t peak = 0;      // before the driver's began anew
        bool has_ended = false; // the driver has refused that: what it holds stays
    };
    using Pools = std::map<uint64_t, Pool>; // by handle

    Pools pools() const;
    void refresh_pool(uint64_t pool);
    void refresh_all(int32_t device);
    void refresh_with_copies(int32_t device);
    uint64_t take(const Charge &charge, uint64_t growing);
    uint64_t try_take(const Charge &charge, uint64_t growing);
    bool keep_charge(uint64_t id, uint64_t pool) noexcept;
    uint64_t pool_of(uint64_t id) const noexcept;
    std::optional<uint64_t> ask(uint64_t pool, PoolFigure which) const;
    uint64_t pool_peak(uint64_t handle, const Pool &pool) const; // growth_mutex_ is held
    uint64_t used_now(int32_t device); // the mutex is held, also by the next two
    bool has_room(int32_t device, const Device &its, uint64_t bytes);
    void settle_share(int32_t device, const Device &its, bool keeps_reserve = true);

    const AskPool ask_;
    std::atomic<void (*)(int32_t device) noexcept> refresh_copies_{nullptr};
    std::mutex growth_mutex_;  // taken before the other, while pools are asked
    mutable std::mutex mutex_; // for all below
    std::map<int32_t, Device> devices_;
    std::map<uint64_t, Item> items_; // by id
    Pools pools_;
    uint64_t last_id_ = 0;
    Tally totals_[2]; // of managers: device, host
    uint64_t ended_pools_peak_ = 0;
};

// What counts against a bound.
uint64_t bounded_sum(const Tally (&rows)[kinds]);

// Each kind that there is some of: "blocks 6.00 GiB, arrays 2.00 GiB", with `before` before each.
// What no bound covers is left out if `bounded`.
std::string kinds_text(const Tally (&rows)[kinds], std::string_view before, bool bounded);

// "8.00 GiB of EMM_LIMIT's 8.00 GiB used: managers' blocks 6.00 GiB, the program's physical memory
// 2.00 GiB". "": the device has no bound.
std::string limit_text(const Account::Figures &figures);

// That of the process.
Account &account();

} // namespace emm::driver
