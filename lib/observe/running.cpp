#include "observe/running.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

namespace emm::observe {
namespace {

constexpr auto running_mark =
    std::bit_cast<uint64_t>(std::array{'e', 'm', 'm', ' ', 'r', 'u', 'n', 's'});
constexpr std::string_view of = " of ";
constexpr size_t function_columns = 24; // the longest slot's name has 22
constexpr size_t columns = sizeof(RunningText) - 1;
constexpr size_t plugin_columns = columns - 1 - function_columns - of.size();

struct RunningRecord {
    std::atomic<uint64_t> first{
        0}; // `running_mark`, or 0: no function runs, and the words mean nothing
    std::array<std::atomic<uint64_t>, std::tuple_size_v<RunningText>> words{};

    void show(const RunningText &text) noexcept {
        for (size_t i = 0; i < text.size(); ++i) {
            words[i].store(text[i], std::memory_order_relaxed);
        }
        first.store(running_mark, std::memory_order_relaxed);
    }
};
static_assert(sizeof(RunningRecord) == sizeof(uint64_t) + sizeof(RunningText),
              "the two are one string");
constinit std::array<RunningRecord, 64> records{};

struct RunningThread {
    RunningRecord *record = nullptr;
    const RunningText *shown = nullptr;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local RunningThread running_thread;

RunningRecord &record() noexcept {
    static constinit std::atomic<uint32_t> threads{0};
    if (!running_thread.record) {
        const uint32_t number = threads.fetch_add(1, std::memory_order_relaxed);
        running_thread.record = &records[number % records.size()];
    }
    return *running_thread.record;
}

} // namespace

RunningText running_text(std::string_view function, std::string_view plugin) noexcept {
    char text[columns + 1];
    std::memset(text, ' ', columns);
    text[columns] = '\0';
    auto put = [&text, at = size_t{1}](std::string_view part, size_t width) mutable {
        std::memcpy(text + at, part.data(), std::min(part.size(), width));
        at += width;
    };
    put(function, function_columns);
    put(of, of.size());
    plugin.remove_prefix(plugin.size() - std::min(plugin.size(), plugin_columns));
    put(plugin, plugin_columns);
    RunningText words;
    std::memcpy(words.data(), text, sizeof text);
    return words;
}

Running::Running(const RunningText &text) noexcept
    : before_(std::exchange(running_thread.shown, &text)) {
    record().show(text);
}

Running::~Running() {
    running_thread.shown = before_;
    if (before_) {
        record().show(*before_);
    } else {
        record().first.store(0, std::memory_order_relaxed);
    }
}

} // namespace emm::observe
