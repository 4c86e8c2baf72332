#pragma once

namespace faults {

// Asks this process what it holds, as `emm top` does, without taking memory. True: it has answered
// or hung up, or cannot be asked at all; false: it did neither for ten seconds.
bool ask_this_process();

} // namespace faults
