#include "observe/running.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace emm::observe {
namespace {

constexpr std::string_view mark = "emm runs ";
constexpr std::string_view of = " of ";
constexpr size_t function_columns = 24; // the longest slot's name has 22
constexpr size_t columns = running_words * sizeof(uint64_t) - 1;
constexpr size_t plugin_columns = columns - mark.size() - function_columns - of.size();

struct Record {
    std::array<std::atomic<uint64_t>, running_words> words{};
};
constinit std::array<Record, 64> records{};

[[gnu::tls_model("initial-exec")]] constinit thread_local Record *own_record = nullptr;

Record &record() noexcept {
    static constinit std::atomic<uint32_t> threads{0};
    if (!own_record) {
        own_record = &records[threads.fetch_add(1, std::memory_order_relaxed) % records.size()];
    }
    return *own_record;
}

RunningText exchange(const RunningText &text) noexcept {
    RunningText before;
    auto &words = record().words;
    for (size_t i = 0; i < text.size(); ++i) {
        before[i] = words[i].load(std::memory_order_relaxed);
        words[i].store(text[i], std::memory_order_relaxed);
    }
    return before;
}

} // namespace

RunningText running_text(std::string_view function, std::string_view plugin) noexcept {
    char text[columns + 1];
    std::memset(text, ' ', columns);
    text[columns] = '\0';
    auto put = [&text, at = size_t{0}](std::string_view part, size_t width) mutable {
        std::memcpy(text + at, part.data(), std::min(part.size(), width));
        at += width;
    };
    put(mark, mark.size());
    put(function, function_columns);
    put(of, of.size());
    plugin.remove_prefix(plugin.size() - std::min(plugin.size(), plugin_columns));
    put(plugin, plugin_columns);
    RunningText words;
    std::memcpy(words.data(), text, sizeof text);
    return words;
}

Running::Running(std::string_view function, std::string_view plugin) noexcept
    : before_(exchange(running_text(function, plugin))) {}

Running::~Running() {
    exchange(before_);
}

} // namespace emm::observe
