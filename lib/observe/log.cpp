#include "observe/log.h"

#include "observe/file.h"
#include "observe/process.h"
#include "observe/text.h"
#include "observe/write_signals.h"

#include <emm/plugin.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <unistd.h>

namespace emm::observe {
namespace {

spdlog::level::level_enum spdlog_level(int32_t level) {
    switch (level) {
    case EMM_LOG_ERROR:
        return spdlog::level::err;
    case EMM_LOG_WARN:
        return spdlog::level::warn;
    case EMM_LOG_INFO:
        return spdlog::level::info;
    default:
        return spdlog::level::debug;
    }
}

struct Setting {
    spdlog::level::level_enum level = spdlog::level::warn;
    std::string file;
    std::string complaint;
};

Setting parse(std::string_view text) {
    Setting setting;
    const size_t colon = text.find(':');
    const std::string_view word = text.substr(0, colon);
    if (word == "error") {
        setting.level = spdlog::level::err;
    } else if (word == "info") {
        setting.level = spdlog::level::info;
    } else if (word == "debug") {
        setting.level = spdlog::level::debug;
    } else if (word == "off") {
        setting.level = spdlog::level::off;
    } else if (word != "warn" && !word.empty()) {
        setting.complaint = "EMM_LOG: expected off, error, warn, info or debug, found '" +
                            std::string(word) + "'; warn is used";
    }
    if (colon != std::string_view::npos) {
        setting.file = with_process_id(text.substr(colon + 1));
    }
    return setting;
}

// Each line is one write, so that processes may share a file.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
public:
    explicit FileSink(File file) : file_(std::move(file)) {}

private:
    void sink_it_(const spdlog::details::log_msg &message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        for (size_t done = 0; done < line.size();) {
            const ssize_t now = write(file_.number(), line.data() + done, line.size() - done);
            if (now < 0 && errno != EINTR) {
                return;
            }
            done += now > 0 ? static_cast<size_t>(now) : 0;
        }
    }
    void flush_() override {}

    const File file_;
};

// The standard streams are what they are, be it a pipe or a socket, and are not opened again.
spdlog::sink_ptr open_sink(Setting &setting) {
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

spdlog::logger *make_logger() {
    Setting setting = parse(environment("EMM_LOG"));
    if (elevated() && std::getenv("EMM_LOG")) {
        setting.complaint = "EMM_LOG is ignored: the process has elevated privileges";
    }
    spdlog::sink_ptr sink = open_sink(setting);
    auto logger = std::make_unique<spdlog::logger>("emm", std::move(sink));
    logger->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [emm] [%l] %v");
    logger->set_level(setting.level);
    logger->flush_on(spdlog::level::debug);
    if (!setting.complaint.empty()) {
        logger->warn("{}", one_line(setting.complaint));
    }
    return logger.release();
}

} // namespace

void log(int32_t level, std::string_view text) noexcept {
    const ProcessCall call;
    if (!call.entered()) {
        return; // the log's lock may be held for ever
    }
    const WriteSignalsBlocked blocked; // a log never ends the program
    try {
        // Never destroyed: a plugin or a static destructor may log after everything else is gone.
        static spdlog::logger *const logger = make_logger();
        if (is_one_line(text)) {
            logger->log(spdlog_level(level), "{}", text);
        } else {
            logger->log(spdlog_level(level), "{}", one_line(text));
        }
    } catch (...) {
        return;
    }
}

void log_formatted(int32_t level, fmt::string_view text, fmt::format_args values) noexcept {
    try {
        log(level, fmt::vformat(text, values));
    } catch (const std::exception &) {
        return; // no memory for the line
    }
}

} // namespace emm::observe
