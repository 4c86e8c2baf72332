#pragma once

#include <cstddef>
#include <string>

namespace emm::tool::check {

// What this process has allocated and freed by the calls that must succeed.
void count_allocated(size_t size);
void count_freed(size_t size);

// For a failure with out of memory: a hint, if the suite had freed most of the device by then.
std::string why_out_of_memory();

} // namespace emm::tool::check
