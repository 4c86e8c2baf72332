#pragma once

namespace emm::monitor {

// Asks the processes of this copy's group to give back memory that they keep and do not use. True:
// at least one has answered.
bool ask_own_group() noexcept;

// The same for all copies of libemm in this process, and their managers.
bool ask_neighbours() noexcept;

} // namespace emm::monitor
