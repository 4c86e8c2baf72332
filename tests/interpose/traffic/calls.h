// Each thread's latest calls of the driver, and the end of the process when a call answers that the
// context is lost: no call can succeed then, and the driver may never let the threads end.
#pragma once

#include <cstddef>

// From here on the entries of `cu` record their calls: the latest `kept` of each thread. Called
// once, before there are threads.
void watch_calls(size_t kept);
