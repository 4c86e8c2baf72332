#include "observe/log_setting.h"

#include "observe/file.h"
#include "observe/settings.h"

#include <emm/plugin.h>

#include <algorithm>

namespace emm::observe {

LogSetting read_log_setting(std::string_view text) {
    LogSetting setting;
    if (text.empty()) {
        return setting;
    }
    const size_t colon = text.find(':');
    const std::string_view word = text.substr(0, colon);
    const auto known = std::find(level_words.begin(), level_words.end(), word);
    setting.level = EMM_LOG_WARN;
    if (const std::string complaint = complaint_about("EMM_LOG", text); !complaint.empty()) {
        setting.complaint = "EMM_LOG: " + complaint;
    } else if (known != level_words.end()) {
        setting.level = static_cast<int32_t>(known - level_words.begin());
    }
    if (colon != std::string_view::npos) {
        setting.file = with_process_id(text.substr(colon + 1));
    }
    return setting;
}

} // namespace emm::observe
