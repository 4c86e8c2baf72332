#pragma once

#include <emm/emm.h>

#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace emm::observe {

// What emm_last_error tells. The fields from `stage` on are for plugins that did not load; an empty
// text means that the field does not apply.
struct ErrorDetail {
    emm_status code = EMM_OK;
    int32_t driver_result = 0;
    std::string text, stage, path, expected, got, hint;
    std::vector<std::string> tried;
};

// Makes `detail` the calling thread's last error; returns its code.
emm_status fail(ErrorDetail detail) noexcept;
emm_status fail(emm_status code, int32_t driver_result, std::string text) noexcept;
emm_status fail(emm_status code, int32_t driver_result, const char *text) noexcept;

// The same where nothing may be thrown: without memory for what `make_text` says, the code's own
// sentence does.
template <class MakeText>
requires std::is_invocable_r_v<std::string, MakeText>
    emm_status fail(emm_status code, int32_t driver_result, const MakeText &make_text)
noexcept {
    try {
        return fail(code, driver_result, std::string(make_text()));
    } catch (const std::bad_alloc &) {
        return fail(code, driver_result, "");
    }
}

emm_status refuse(std::string text) noexcept; // a value that makes no sense

const emm_error *last_error() noexcept;

// What was recorded, to be amended and recorded again.
ErrorDetail last_detail();

// Keeps the calling thread's last error for a scope in which others may come.
class Preserved {
public:
    Preserved() noexcept;
    ~Preserved() { fail(std::move(detail_)); }
    Preserved(const Preserved &) = delete;
    Preserved &operator=(const Preserved &) = delete;
    emm_status code() const { return detail_.code; }

private:
    ErrorDetail detail_;
};

// What emm_host.fail does: the same, marked as the plugin's word on the error it is about to
// return.
emm_status fail_by_plugin(emm_status code, int32_t driver_result, const char *text) noexcept;

// The last error is to be taken for a plugin's word: it came from a service of the host.
void make_plugin_word() noexcept;

// Whether the last error is a plugin's description that no failing call has used yet; marks it as
// used.
bool take_plugin_word() noexcept;

// A plugin has answered `code`: keeps its own description of that if it gave one, else says
// "`what`: " and the code's text.
emm_status describe(emm_status code, const char *what) noexcept;

} // namespace emm::observe
