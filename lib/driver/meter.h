#pragma once

#include <emm/cuda.h>
#include <emm/emm.h>

#include <functional>

namespace emm::driver {

// Counts calls of the entries that emm and its plugin use, and keeps their memory within the
// device's bound, if EMM_DRIVER_METER=1 or EMM_LIMIT is set. Otherwise it returns every entry
// unchanged and costs nothing. `find` looks up uncounted entries, for the meter itself.
using FindEntry = emm_function (*)(const char *name, int32_t cuda_version) noexcept;
emm_function meter(const char *name, emm_function entry, FindEntry find) noexcept;

// The context of this cuCtxGetId has ended. Memory that ends with it, and that its manager had not
// given back, leaves the account.
void forget_context(uint64_t context) noexcept;

// Whether the account has memory that this context had taken for its manager.
bool holds_memory(uint64_t context) noexcept;

// Whether calls are counted.
bool is_counted() noexcept;

void read_usage(emm_driver_usage &ret_usage);

// Visits until `visit` returns false.
void visit_calls(const std::function<bool(const char *name, uint64_t calls)> &visit);

} // namespace emm::driver
