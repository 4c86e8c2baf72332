#pragma once

namespace emm::monitor {

// Whether any process that shares this one's budget has been asked to give back what it keeps, and
// has answered: of the group that this copy of libemm is a member of.
bool ask_own_group() noexcept;

// The same for all copies of libemm in this process, and their managers.
bool ask_neighbours() noexcept;

} // namespace emm::monitor
