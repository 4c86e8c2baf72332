#pragma once

#include "core/record/context.h"
#include "observe/memory_report.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Finds out who holds the memory of a device, for the out-of-memory report and at any other time.
// observe/memory_report.h composes the texts.
namespace emm::core {

// The report on the context's device. `request`: the failed allocation, if there is one. Asks the
// plugin, the driver and NVML, and reads symbols from files: some milliseconds. Holds no lock
// meanwhile, and changes no last error. Throws std::bad_alloc.
observe::MemoryReport memory_report(emm_context &context,
                                    std::optional<observe::MemoryReport::Request> request);

// The reports on all devices with served contexts, as lines. A context whose manager is being made,
// reset or given up is left out.
std::vector<std::string> memory_report_lines();

// Writes such lines to the log's destination, at a level that is written unless the log is off.
void write_report(const std::vector<std::string> &lines) noexcept;

// Keeps for leak_report_lines() the callers of the memory that a reset or the end of the context is
// about to drop. Throws std::bad_alloc.
void keep_dropped(const emm_context &context, bool by_reset);

// The leak report, for a program that is ending: live allocations by caller, and those that were
// live when a context was reset or ended. Empty without EMM_TRACK.
std::vector<std::string> leak_report_lines();

// Whether a report is wanted when memory has finally run out (report_exhaustion of
// core/memory/recovery.h); at most one in 10 s. `setting` is EMM_OOM_REPORT: on, off, page:FOLDER,
// or empty.
bool is_report_wanted(std::string_view setting, bool is_tracking) noexcept;

} // namespace emm::core
