// Any EMM_LOG is either a level and perhaps a file, which read the same after being written again,
// or a sentence complains about it; warnings are shown in both cases.
#include "file.h"
#include "observe/file.h"
#include "observe/log_setting.h"
#include "observe/settings.h"

using namespace emm::observe;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string text(reinterpret_cast<const char *>(data), size);
    const LogSetting setting = read_log_setting(text);
    require(setting.level.has_value() == !text.empty(), "a level is set where there is a text");
    if (!setting.complaint.empty()) {
        require_sentence(setting.complaint);
        require(setting.level == EMM_LOG_WARN, "without a level that is known, warnings are shown");
        require(setting.complaint.size() < 5000, "a complaint is of bounded length");
    } else if (setting.level) {
        const std::string word(level_words.at(static_cast<size_t>(*setting.level)));
        require(setting.file.empty() ? text == word
                                     : with_process_id(text) == word + ":" + setting.file,
                "a setting reads the same after being written again");
    }
    return 0;
}
