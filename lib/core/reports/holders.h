#pragma once

#include "core/record/context.h"
#include "observe/memory_report.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Finds out who holds the memory of a device, for the report when it runs out, and for any other
// time: composing is in observe/memory_report.h.
namespace emm::core {

// Of the context's device. `request`: the allocation that has failed, if that is why. Asks the
// plugin, the driver and NVML, and reads symbols from files: some milliseconds. Takes no lock over
// that, and changes no last error. Throws std::bad_alloc.
observe::MemoryReport memory_report(emm_context &context,
                                    std::optional<observe::MemoryReport::Request> request);

// The reports of all devices that contexts are served on, as lines. A context whose manager is just
// being made, reset or given up is left out.
std::vector<std::string> memory_report_lines();

// Writes such lines where the log goes, at a level that is written unless the log is off.
void write_report(const std::vector<std::string> &lines) noexcept;

// Keeps for leak_report_lines() who asked for what the context has, which its reset or its end is
// about to drop. Throws std::bad_alloc.
void keep_dropped(const emm_context &context, bool by_reset);

// What has leaked, if the program is ending, as lines: live allocations by caller, and those that
// were live when a context was reset or ended. Empty without EMM_TRACK.
std::vector<std::string> leak_report_lines();

// Whether a report is wanted when memory has run out for good (report_exhaustion of
// core/memory/recovery.h), at most one in 10 s. `setting` is EMM_OOM_REPORT: on, off, page:FOLDER,
// or empty.
bool is_report_wanted(std::string_view setting, bool is_tracking) noexcept;

} // namespace emm::core
