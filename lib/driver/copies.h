#pragma once

#include "driver/account.h"

#include <cstdint>
#include <memory>
#include <mutex>

// Several copies of libemm in one process (that of `emm run`, a wheel's, a static one) share the
// bounds of EMM_LIMIT. The copy that reads EMM_LIMIT first has the bounds, or the process's part in
// a group. The other copies report their totals to it, and ask it for room.
namespace emm::driver {

// Functions that one copy of libemm calls in another, which may be of another release: plain
// functions, and a version. No lock of the caller's account is held, except by cover(),
// return_unused(), bound(), others() and set_bound().
struct CopyCalls {
    uint64_t version;
    // Only the first copy has these. `join` returns the number that `other` gets there; 0: the
    // first copy has no limits, or no room for one more. Waits until the first copy has read its
    // limits.
    uint64_t (*join)(const CopyCalls *other);
    bool (*cover)(uint64_t copy, int32_t device, uint64_t bytes);
    void (*return_unused)(uint64_t copy, int32_t device, uint64_t used, bool keeps_reserve);
    uint64_t (*bound)(int32_t device);
    void (*others)(uint64_t copy, int32_t device, uint64_t *ret_processes, uint64_t *ret_copies);
    void (*set_bound)(int32_t device, uint64_t bytes);
    void (*publish_socket)(uint64_t random);
    bool (*ask_group)();
    // Every copy has these two. The first copy passes each call on to all other copies except
    // `copy`.
    void (*refresh)(uint64_t copy, int32_t device);
    void (*give_back)(uint64_t copy);
};

// Held from before EMM_LIMIT is read until the account has its values.
extern std::mutex limits_mutex;
void note_limits_read() noexcept;

// Finds the first copy, or becomes it. True: this is the first copy, or does without another. After
// it has returned false, do not call it again.
bool is_first_copy() noexcept;

// The share of a copy that is not the first.
std::unique_ptr<Share> share_of_first_copy(int32_t device);

// The managers of other copies give back memory that they keep and do not use. False: there is no
// other copy.
bool ask_copies() noexcept;

// Publishes the number in this process's socket name (monitor/protocol.h) for all copies, because
// only the first one is a member of the group (EMM_LIMIT_SHARED). The group's other processes may
// ask this one at that socket.
void publish_socket(uint64_t random) noexcept;
// The group's other processes give back memory that they keep and do not use. False: none has
// answered.
bool ask_group() noexcept;

// Functions that other copies call. Set when libemm is loaded.
using GiveBackIdle = void (*)() noexcept;
inline constinit GiveBackIdle give_back_idle = nullptr;
using AskOwnGroup = bool (*)() noexcept;
inline constinit AskOwnGroup ask_own_group = nullptr;

} // namespace emm::driver
