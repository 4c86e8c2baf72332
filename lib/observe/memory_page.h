#pragma once

#include "observe/memory_report.h"

#include <string>
#include <string_view>

namespace emm::observe {

// The failed process, and the time.
struct PageSubject {
    std::string program, command;
    uint32_t process = 0;
    std::string time; // as shown
};

// A report as one HTML file that loads nothing and runs nothing. Pure. Names appear as text, with
// any characters.
std::string report_page(const MemoryReport &report, const PageSubject &subject);

// DIR of "page:DIR", the value of EMM_OOM_REPORT; "" for other values.
inline std::string_view page_folder(std::string_view setting) noexcept {
    constexpr std::string_view prefix = "page:";
    return setting.starts_with(prefix) ? setting.substr(prefix.size()) : "";
}

} // namespace emm::observe
