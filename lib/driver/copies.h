#pragma once

#include "driver/account.h"

#include <cstdint>
#include <memory>
#include <mutex>

// Several copies of libemm in one process (that of `emm run`, a wheel's, one linked statically)
// share what EMM_LIMIT allows. The copy that reads it first has the bounds, or the process's part
// in a group. The others count there what they have taken, in all, and ask it for room.
namespace emm::driver {

// What one copy calls of another, which may be of another release: plain functions, and a version.
// No lock of the caller's account is held, but for cover(), settle(), bound(), others() and
// set_bound().
struct CopyCalls {
    uint64_t version;
    // Of the first copy. The number that `other` has there; 0: it has no limits, or no room for one
    // more. Waits until the first has read its limits.
    uint64_t (*join)(const CopyCalls *other);
    bool (*cover)(uint64_t copy, int32_t device, uint64_t bytes);
    void (*settle)(uint64_t copy, int32_t device, uint64_t used, bool keeps_reserve);
    uint64_t (*bound)(int32_t device);
    void (*others)(uint64_t copy, int32_t device, uint64_t *ret_processes, uint64_t *ret_copies);
    void (*set_bound)(int32_t device, uint64_t bytes);
    void (*publish_socket)(uint64_t random);
    bool (*ask_group)();
    // Of every one; the first passes both on to all but `copy`.
    void (*refresh)(uint64_t copy, int32_t device);
    void (*give_back)(uint64_t copy);
};

// Held while EMM_LIMIT is read, until the account has what it says.
extern std::mutex limits_mutex;
void limits_are_there() noexcept;

// Finds the first copy, or becomes it. True: this is it, or does without another. Once it has
// answered false, it is not to be called again.
bool is_first_copy() noexcept;

// The part of a copy that is not the first.
std::unique_ptr<Share> share_of_first_copy(int32_t device);

// The managers of other copies give back what they keep and do not use. False: there is no other.
bool ask_copies() noexcept;

// For all copies, because the first one alone is a member of the group (EMM_LIMIT_SHARED). Its
// other processes may ask this one at its socket with that number in the name (monitor/protocol.h).
void publish_socket(uint64_t random) noexcept;
// They give back what they keep and do not use. False: none has answered.
bool ask_group() noexcept;

// What other copies call. Set when libemm is loaded.
using GiveBackIdle = void (*)() noexcept;
inline constinit GiveBackIdle give_back_idle = nullptr;
using AskOwnGroup = bool (*)() noexcept;
inline constinit AskOwnGroup ask_own_group = nullptr;

} // namespace emm::driver
