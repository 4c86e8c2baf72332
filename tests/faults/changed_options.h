#pragma once

#include "run.h"

namespace faults {

void change_options(Run &run);

} // namespace faults
