// The latest calls that each thread has made of the driver, and the end of the process when one of
// them answers that the context is lost: no call can succeed then, and the driver may never let
// the threads end.
#pragma once

#include <cstddef>

// From here on the entries of `cu` note their calls: so many of each thread are kept. Once, before
// there are threads.
void watch_calls(size_t kept);
