#include "observe/error.h"

#include "observe/json.h"
#include "observe/text.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <pthread.h>

namespace emm::observe {
namespace {

constexpr emm_error error_of(emm_status code, const char *text) {
    auto error = sized<emm_error>();
    error.code = code;
    error.text = text;
    return error;
}

constexpr emm_error no_error = error_of(EMM_OK, "no error");

// emm_error points to the texts beside it, so a record is filled in place and never moved.
struct Record {
    Record() noexcept { show(no_error); }

    // The text is copied, because the program may hold its address: as an argument of the call that
    // fails now.
    void show(const emm_error &error) noexcept {
        const size_t length = strnlen(error.text, longest_text);
        std::memcpy(text, error.text, length);
        text[length] = '\0';
        view = error;
        view.text = text;
    }

    ErrorDetail detail;
    std::vector<const char *> tried;
    std::string json;
    char text[longest_text + 1];
    emm_error view;
    bool by_plugin = false;
};

// Without memory for a record, a thread has the code and the code's own sentence.
struct OfThread {
    Record *record = nullptr;
    emm_error bare = no_error;
    bool has_ended = false; // calls may still come, from other destructors
};
[[gnu::tls_model("initial-exec")]] constinit thread_local OfThread of_thread;

constexpr emm_error no_record =
    error_of(EMM_E_SHUT_DOWN, "the thread is ending, and emm no longer records its errors");

void end_thread(void *record) {
    of_thread = {nullptr, no_record, true};
    delete static_cast<Record *>(record);
}

// A thread-local object's destructor would not do: without memory to register it, the C library
// ends the process.
bool end_with_thread(Record *record) noexcept {
    static pthread_key_t key;
    static const bool made = pthread_key_create(&key, &end_thread) == 0;
    return made && pthread_setspecific(key, record) == 0;
}

// NULL: there is no memory for a record, or the thread is ending.
Record *own_record() noexcept {
    if (!of_thread.record && !of_thread.has_ended) {
        std::unique_ptr<Record> made(new (std::nothrow) Record);
        if (made) {
            made->show(of_thread.bare); // the last error from before there was memory for a record
        }
        of_thread.record = made && end_with_thread(made.get()) ? made.release() : nullptr;
    }
    return of_thread.record;
}

std::string to_json(const ErrorDetail &detail) {
    return fmt::format(
        R"({{"error":{{"code":{},"stage":{},"message":{},"path":{},"expected":{},"got":{},)"
        R"("tried":{},"hint":{}}}}})",
        detail.code, json_quoted(detail.stage), json_quoted(detail.text),
        json_quoted_or_null(detail.path), json_quoted_or_null(detail.expected),
        json_quoted_or_null(detail.got), json_array(detail.tried),
        json_quoted_or_null(detail.hint));
}

// Enforces emm_error's promises about texts.
void tidy(ErrorDetail &detail) {
    constexpr size_t most_tried = 64;
    if (detail.tried.size() > most_tried) {
        const size_t more = detail.tried.size() - most_tried + 1;
        detail.tried.resize(most_tried);
        detail.tried.back() = fmt::format("and {} more", more);
    }
    for (std::string *text :
         {&detail.text, &detail.stage, &detail.path, &detail.expected, &detail.got, &detail.hint}) {
        make_one_line(*text);
    }
    for (std::string &path : detail.tried) {
        make_one_line(path);
    }
}

const char *pointer_or_null(const std::string &text) {
    return text.empty() ? nullptr : text.c_str();
}

void point(Record &to) {
    const ErrorDetail &detail = to.detail;
    if (!detail.stage.empty()) {
        to.tried.clear();
        for (const std::string &path : detail.tried) {
            to.tried.push_back(path.c_str());
        }
        to.tried.push_back(nullptr);
        to.json = to_json(detail);
    } else {
        to.json.clear();
    }
    to.show({sizeof(emm_error), detail.code, detail.driver_result, 0,
             detail.text.empty() ? emm_status_text(detail.code) : detail.text.c_str(),
             pointer_or_null(detail.stage), pointer_or_null(detail.path),
             pointer_or_null(detail.expected), pointer_or_null(detail.got),
             pointer_or_null(detail.hint), detail.stage.empty() ? nullptr : to.tried.data(),
             pointer_or_null(to.json), pointer_or_null(detail.report)});
}

} // namespace

emm_status fail(ErrorDetail detail) noexcept {
    const emm_status code = detail.code;
    Record *const record = own_record();
    if (!record) {
        of_thread.bare = of_thread.has_ended ? no_record : error_of(code, emm_status_text(code));
        return code;
    }
    try {
        tidy(detail);
        record->detail = std::move(detail);
        point(*record);
    } catch (const std::exception &) {
        record->detail = {};
        record->show(error_of(code, emm_status_text(code)));
    }
    record->by_plugin = false;
    return code;
}

emm_status fail(emm_status code, int32_t driver_result, std::string text) noexcept {
    return fail({.code = code, .driver_result = driver_result, .text = std::move(text)});
}

emm_status fail(emm_status code, int32_t driver_result, const char *text) noexcept {
    std::string copy;
    try {
        copy = bounded(text);
    } catch (const std::bad_alloc &) {
        // The code's own sentence is used.
    }
    return fail(code, driver_result, std::move(copy));
}

emm_status fail_formatted(emm_status code, int32_t driver_result, fmt::string_view text,
                          fmt::format_args values) noexcept {
    try {
        return fail(code, driver_result, fmt::vformat(text, values));
    } catch (const std::exception &) {
        return fail(code, driver_result, "");
    }
}

emm_status refuse(std::string text) noexcept {
    return fail(EMM_E_INVALID_VALUE, 0, std::move(text));
}

const emm_error *last_error() noexcept {
    const Record *const record = own_record();
    return record ? &record->view : &of_thread.bare;
}

ErrorDetail last_detail() {
    return of_thread.record ? of_thread.record->detail : ErrorDetail{};
}

Preserved::Preserved() noexcept : by_plugin_(take_plugin_word()) {
    if (Record *const record = of_thread.record) {
        std::swap(detail_, record->detail);
        record->show(no_error);
    } else if (!of_thread.has_ended) {
        detail_.code = std::exchange(of_thread.bare, no_error).code;
    }
}

Preserved::~Preserved() {
    fail(std::move(detail_));
    if (by_plugin_) {
        make_plugin_word();
    }
}

PreservedFailure::PreservedFailure(emm_status status) noexcept {
    if (status >= EMM_OK) {
        return;
    }
    ErrorDetail seen;
    try {
        seen = last_detail();
    } catch (const std::bad_alloc &) {
        // The code sees no error.
    }
    said_.emplace();
    fail(std::move(seen));
}

emm_status fail_by_plugin(emm_status code, int32_t driver_result, const char *text) noexcept {
    fail(code, driver_result, text && *text ? text : emm_status_text(code));
    make_plugin_word();
    return code;
}

void make_plugin_word() noexcept {
    if (of_thread.record) {
        of_thread.record->by_plugin = true;
    }
}

bool take_plugin_word() noexcept {
    return of_thread.record && std::exchange(of_thread.record->by_plugin, false);
}

emm_status describe(emm_status code, const char *what) noexcept {
    if (take_plugin_word() && last_error()->code == code) {
        return code;
    }
    return fail(code, 0, "{}: {}", what, emm_status_text(code));
}

} // namespace emm::observe
