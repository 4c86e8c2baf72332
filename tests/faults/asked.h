#pragma once

namespace faults {

// Asks this process for its figures, as `emm top` does, without taking memory. True: it has
// answered or hung up, or cannot be asked; false: none of these happened for that long.
bool ask_this_process(int milliseconds);

} // namespace faults
