#pragma once

#include "driver/driver.h"

namespace emm::driver {

// What is put on `after` from now on runs behind what `before` holds now. With EMM_STREAM_UNORDERED
// for `after` the caller waits instead. The context is current. A failure is described.
emm_status order(const Driver &driver, emm_stream before, emm_stream after);

} // namespace emm::driver
