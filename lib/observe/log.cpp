#include "observe/log.h"

#include "observe/error.h"
#include "observe/file.h"
#include "observe/log_setting.h"
#include "observe/process.h"
#include "observe/program_code.h"
#include "observe/read_write.h"
#include "observe/text.h"

#include <emm/plugin.h>
#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace emm::observe {
namespace {

// An unknown level counts as the least urgent.
int32_t known(int32_t level) {
    return level >= EMM_LOG_ERROR && level <= EMM_LOG_DEBUG ? level : EMM_LOG_DEBUG;
}

// Both number the levels in steps of one, in opposite directions.
spdlog::level::level_enum spdlog_level(int32_t level) {
    static_assert(EMM_LOG_DEBUG - EMM_LOG_ERROR == spdlog::level::err - spdlog::level::debug);
    return static_cast<spdlog::level::level_enum>(spdlog::level::err + EMM_LOG_ERROR - level);
}

// Each line is one write, so processes may share a file.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
public:
    explicit FileSink(File file) : file_(std::move(file)) {}

private:
    void sink_it_(const spdlog::details::log_msg &message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        write_all(file_.number(), {line.data(), line.size()});
    }
    void flush_() override {}

    const File file_;
};

// The standard streams are used as they are, even a pipe or a socket, and are not opened again.
spdlog::sink_ptr open_sink(LogSetting &setting) {
    if (setting.file == "/dev/stdout") {
        return std::make_shared<spdlog::sinks::stdout_sink_mt>();
    }
    if (!setting.file.empty() && setting.file != "/dev/stderr") {
        std::string reason;
        if (File file = open_to_append(setting.file, reason)) {
            return std::make_shared<FileSink>(std::move(file));
        }
        setting.complaint = "EMM_LOG: " + reason + "; standard error is used";
    }
    return std::make_shared<spdlog::sinks::stderr_sink_mt>();
}

// The application's callback. Its lock is held during each call, so a removed callback is never
// called again. Lines that arise within the callback do not go to it.
class Callback {
public:
    // Returns the previous callback.
    emm_log_callback_info set(const emm_log_callback_info &next) {
        const std::lock_guard lock(mutex_);
        return std::exchange(current_, next);
    }
    static bool is_calling() { return calling; }

    void call(int32_t level, const std::vector<std::string> &lines) {
        if (calling) {
            return;
        }
        const std::lock_guard lock(mutex_);
        for (auto line = lines.begin(); current_.callback && line != lines.end(); ++line) {
            const Calling now;
            current_.callback(level, line->c_str(), current_.user_data);
        }
    }

private:
    static inline constinit thread_local bool calling = false;
    struct Calling {
        Calling() { calling = true; }
        ~Calling() { calling = false; }
    };

    std::mutex mutex_;
    emm_log_callback_info current_ = {};
};

// The destinations of lines: EMM_LOG's file or standard error, and the application's callback.
class Log {
public:
    // Never destroyed, because a plugin or a static destructor may log after everything else is
    // gone.
    static Log &process() {
        static Log *const log = new Log;
        return *log;
    }

    void write(int32_t level, std::string_view text) {
        const std::string cleaned = is_one_line(text) ? "" : one_line(text);
        const std::string_view line = cleaned.empty() ? text : cleaned;
        level = known(level);
        const LogLevels levels = levels_.load();
        const bool is_for_callback = level <= levels.callback;
        const bool may_call = !NoProgramCode::is_in_force();
        const bool is_instead = is_for_callback && !may_call && !is_decided_by_environment();
        if (level <= levels.place || is_instead) {
            put(level, line);
        }
        if (is_for_callback && may_call) {
            callback_.call(level, {std::string(line)});
        }
    }
    // Returns the previous callback.
    emm_log_callback_info set_callback(const emm_log_callback_info &next) {
        const std::lock_guard lock(mutex_);
        callback_level_ = next.callback ? std::optional(next.level) : std::nullopt;
        const emm_log_callback_info previous =
            callback_.set(next.callback ? next : emm_log_callback_info{});
        apply_levels();
        return previous;
    }
    // Ignores the level. Writes to the file or standard error, or line by line to a callback that
    // replaces standard error.
    void report(std::string_view text) {
        if (!NoProgramCode::is_in_force() && is_replaced_by_callback()) {
            callback_.call(EMM_LOG_INFO, split(text, '\n'));
        } else {
            put(EMM_LOG_INFO, text);
        }
    }
    // Returns the previous level.
    int32_t set_level(int32_t level) {
        const std::lock_guard lock(mutex_);
        const int32_t previous = std::exchange(level_, level);
        apply_levels();
        return previous;
    }
    bool is_replaced_by_callback() {
        const std::lock_guard lock(mutex_);
        return !setting_.level && callback_level_;
    }
    bool is_decided_by_environment() const { return setting_.level.has_value(); }

private:
    static std::string_view own_setting() {
        const char *const value = secure_getenv("EMM_LOG");
        return value ? value : "";
    }
    Log() : setting_(read_log_setting(own_setting())), place_(open_sink(setting_)) {
        if (elevated() && std::getenv("EMM_LOG")) {
            setting_.complaint = "EMM_LOG is ignored: the process has elevated privileges";
        }
        place_->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [emm] [%l] %v");
        apply_levels();
        if (!setting_.complaint.empty()) {
            write(EMM_LOG_WARN, setting_.complaint);
        }
    }
    void put(int32_t level, std::string_view line) {
        place_->log({"emm", spdlog_level(level), {line.data(), line.size()}});
        place_->flush();
    }
    void apply_levels() { levels_ = log_levels(setting_.level, level_, callback_level_); }

    std::mutex mutex_;
    LogSetting setting_;
    int32_t level_ = EMM_LOG_WARN;
    std::optional<int32_t> callback_level_;
    std::atomic<LogLevels> levels_;
    const spdlog::sink_ptr place_;
    Callback callback_;
};

template <class Function> void with_log(Function function) noexcept {
    const ProcessCall call;
    if (!call.entered()) {
        return; // the child could wait for the log's lock for ever
    }
    const WriteSignalsBlocked blocked; // a log line never ends the program
    try {
        function(Log::process());
    } catch (...) {
        return;
    }
}

} // namespace

void log(int32_t level, std::string_view text) noexcept {
    with_log([&](Log &log) { log.write(level, text); });
}

void report(std::string_view text) noexcept {
    with_log([&](Log &log) { log.report(text); });
}

emm_status set_log_callback(const emm_log_callback_info &next,
                            emm_log_callback_info *ret_previous) {
    if (Callback::is_calling()) {
        return fail(EMM_E_REENTERED, 0, "the log's callback cannot be replaced from within it");
    }
    const emm_log_callback_info previous = Log::process().set_callback(next);
    if (ret_previous) {
        *ret_previous = previous;
    }
    return EMM_OK;
}

emm_status set_log_level(int32_t level, int32_t *ret_previous) {
    const int32_t previous = Log::process().set_level(level);
    if (ret_previous) {
        *ret_previous = previous;
    }
    return Log::process().is_decided_by_environment() ? EMM_S_IGNORED : EMM_OK;
}

void log_formatted(int32_t level, fmt::string_view text, fmt::format_args values) noexcept {
    try {
        log(level, fmt::vformat(text, values));
    } catch (const std::exception &) {
        return; // no memory for the line
    }
}

} // namespace emm::observe
