#pragma once

#include "json.h"

namespace emm::tool::check {

// The other side of sharing: opens the memory that the job describes and tells what is in it.
Json open_shared(const Json &job);

} // namespace emm::tool::check
