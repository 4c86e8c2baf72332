#pragma once

#include <emm/emm.h>

namespace emm::driver {

// Counts what passes through the entries that emm and its plugin use, if EMM_DRIVER_METER=1 is in
// the environment; else it hands every entry back as it is and costs nothing.
emm_function meter(const char *name, emm_function entry) noexcept;

void read_usage(emm_driver_usage &ret_usage);
void visit_calls(emm_driver_call_visitor visit, void *user_data);

} // namespace emm::driver
