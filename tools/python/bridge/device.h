#pragma once

#include <emm/emm.h>

namespace emm::bridge {

// The record of the primary context of `device`.
emm_status find_context(int device, emm_context **ret_context) noexcept;

// The same, but only if it has been asked for before: freed memory was allocated. Else NULL.
emm_context *known_context(int device) noexcept;

constexpr int most_devices = 64;

// Throws with the text of the calling thread's last error.
[[noreturn]] void refuse(const char *what, size_t size, int device);

} // namespace emm::bridge
