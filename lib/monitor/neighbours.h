#pragma once

#include <cstdint>
#include <string>

namespace emm::monitor {

std::string socket_name(uint64_t pid, uint64_t random);

// The processes that share this one's budget may ask it at the socket of that name.
void publish(uint64_t random) noexcept;

// Whether any of them has been asked to give back what it keeps, and has answered.
bool ask_neighbours() noexcept;

} // namespace emm::monitor
