#pragma once

#include <emm/cuda.h>
#include <emm/emm.h>

#include <functional>

namespace emm::driver {

// Counts what passes through the entries that emm and its plugin use, and keeps that within the
// device's bound, if EMM_DRIVER_METER=1 or EMM_LIMIT is in the environment; else it hands every
// entry back as it is and costs nothing.
// `find`: entries that are not counted, which the meter asks itself.
using FindEntry = emm_function (*)(const char *name, int32_t cuda_version) noexcept;
emm_function meter(const char *name, emm_function entry, FindEntry find) noexcept;

// The context of this cuCtxGetId has ended, and with it what its manager had not given back of
// memory that ends with it.
void forget_context(uint64_t context) noexcept;

// The account has memory that this context had taken for its manager.
bool holds_memory(uint64_t context) noexcept;

// Whether it does.
bool is_counted() noexcept;

void read_usage(emm_driver_usage &ret_usage);

// Until `visit` answers false.
void visit_calls(const std::function<bool(const char *name, uint64_t calls)> &visit);

} // namespace emm::driver
