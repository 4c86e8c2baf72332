#pragma once

#include <emm/emm.h>

namespace emm::bridge {

// The record of the primary context of `device`. The first call for a device waits for a reset in
// another thread, without the interpreter's lock.
emm_status find_context(int device, emm_context **ret_context);

// The same, but only if it has been asked for before: freed memory was allocated. Else NULL.
emm_context *known_context(int device) noexcept;

constexpr int most_devices = 64;

// Throws with the text of the calling thread's last error.
[[noreturn]] void refuse(const char *what, size_t size, int device);

} // namespace emm::bridge
