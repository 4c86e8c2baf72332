#pragma once

#include <cstdint>

namespace emm::monitor {

// The processes that share this one's budget may ask it at its socket, with that number in the
// name.
void publish(uint64_t random) noexcept;

// Whether any of them has been asked to give back what it keeps, and has answered.
bool ask_neighbours() noexcept;

} // namespace emm::monitor
