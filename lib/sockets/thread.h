#pragma once

#include <functional>

namespace emm::sockets {

// Starts a thread that stays, blocks all signals and is joined by none. False: there is none to be
// had, which is logged.
bool start_thread(const char *name, std::function<void()> body) noexcept;

} // namespace emm::sockets
