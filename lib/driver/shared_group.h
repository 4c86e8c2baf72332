#pragma once

#include "driver/account.h"
#include "driver/limit.h"
#include "driver/shared_budget.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

// EMM_LIMIT_SHARED: processes of one user share a budget under one name, by a common file. Every
// process of the user can write to that file, and no other user can. Functions return "" or the
// error.
namespace emm::driver {

std::string group_name_problem(std::string_view name);

// Values of variables; "" if unset.
struct GroupFolders {
    std::string_view chosen;  // EMM_LIMIT_FOLDER
    std::string_view runtime; // XDG_RUNTIME_DIR
};
// The path of the group's file. If the user has not chosen the folder, it is made, for this user
// alone.
std::string find_group(std::string_view name, const GroupFolders &folders, std::string &ret_path);

// A process's part in one device's budget.
class GroupShare : public Share {
public:
    // Takes back the holdings of members that have died: of this one, or of all.
    using TakeBackDead = std::function<bool(std::optional<unsigned> member)>;
    GroupShare(SharedState &state, SharedDevice &device, unsigned member,
               TakeBackDead take_back_dead)
        : state_(state), device_(device), member_(member),
          take_back_dead_(std::move(take_back_dead)) {}

    // While the share holds enough, this touches no shared memory.
    bool cover(uint64_t bytes, bool takes_reserve) noexcept override;
    void return_unused(uint64_t used, bool keeps_reserve) noexcept override;
    void count(uint64_t bytes) noexcept override;

    uint64_t bound() const noexcept override;
    // From time to time, looks for members that have died, and takes back their holdings.
    Others others() noexcept override;

private:
    SharedState &state_;
    SharedDevice &device_;
    const unsigned member_;
    const TakeBackDead take_back_dead_;
    BoundInForce find_bound() const noexcept;

    std::chrono::steady_clock::time_point looked_; // time of the last look
    // Whether the members' bounds differ, as last seen. Then no reserve is held, which might be
    // above the bound that is in force once a member has died.
    bool bounds_differ_ = false;
    bool is_above_ = false; // more than the bound was counted: until there is room, no reserve
};

// The mapped file. A process is a member as long as it maps the file. The mapping keeps
// the kernel's lock on the process's slot, without a descriptor. The kernel releases the lock when
// the process ends or calls exec. A forked child has neither mapping nor lock.
class GroupFile {
public:
    GroupFile() = default;
    ~GroupFile() { close(); }
    GroupFile(const GroupFile &) = delete;
    GroupFile &operator=(const GroupFile &) = delete;

    // `joins`: takes a slot, and makes the file if there is none.
    std::string open(const std::string &path, bool joins);
    SharedState &state() const { return *state_; }
    unsigned member() const { return member_; }

    void close() noexcept;
    // Returns the bytes of ended members to the group: of this one, or of all. True: there were
    // some.
    bool take_back_dead(std::optional<unsigned> one = std::nullopt) const noexcept;

private:
    std::string path_;
    SharedState *state_ = nullptr;
    unsigned member_ = most_members;
    dev_t device_ = 0;
    ino_t file_ = 0;
};

// A device on which the process has a bound.
struct GroupDevice {
    Uuid uuid;
    uint64_t bytes = 0, bound = 0;
};
// Joins. The shares are in the order of the devices, and live as long as the file.
std::string join_group(GroupFile &file, const std::string &path,
                       const std::vector<GroupDevice> &devices,
                       std::vector<std::unique_ptr<Share>> &ret_shares);

std::string uuid_text_of(const SharedDevice &device);

// A sentence about the first device whose members hold more than its bound, or "".
std::string above_bounds_text(const GroupFile &file);

// Changes the bound of every member, from now on.
std::string change_bounds(const GroupFile &file, const std::vector<Limit> &limits);

// The group of the process; NULL: none.
inline constinit std::atomic<GroupFile *> group_of_process{nullptr};

} // namespace emm::driver
