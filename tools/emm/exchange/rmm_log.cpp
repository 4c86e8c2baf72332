#include "exchange/rmm_log.h"

#include "exchange/conversion.h"
#include "print.h"
#include "trace/file.h"

#include <array>
#include <charconv>
#include <fmt/format.h>

namespace emm::tool {
namespace {

constexpr size_t rmm_columns = 6;
constexpr uint64_t rmm_day = 24ull * 60 * 60 * 1'000'000; // microseconds

std::array<std::string_view, rmm_columns> rmm_fields(std::string_view line) {
    std::array<std::string_view, rmm_columns> fields;
    std::string_view rest = line;
    for (size_t i = 0; i < rmm_columns; i++) {
        const size_t comma = rest.find(',');
        if ((comma == std::string_view::npos) != (i + 1 == rmm_columns)) {
            throw Malformed("6 fields, " + std::string(RmmLog::header),
                            in_quotes(line) + std::string(RmmLog::how_to_unmix));
        }
        fields[i] = rest.substr(0, comma);
        rest.remove_prefix(std::min(fields[i].size() + 1, rest.size()));
    }
    return fields;
}

uint64_t rmm_number(std::string_view text, const char *what, int base = 10) {
    uint64_t value = 0;
    const char *const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value, base);
    if (error != std::errc() || stopped != end) {
        throw Malformed(fmt::format("a whole number for {}", what), in_quotes(text));
    }
    return value;
}

// Some versions of RMM write 0x before a stream, and some (nil).
uint64_t rmm_handle(std::string_view text, const char *what) {
    if (text == "(nil)") {
        return 0;
    }
    return rmm_number(text.substr(text.substr(0, 2) == "0x" ? 2 : 0), what, 16);
}

// 15:06:25.123456; older versions have a colon before the microseconds.
uint64_t rmm_time(std::string_view text) {
    const bool has_form =
        text.size() == 15 && text[2] == ':' && text[5] == ':' && (text[8] == '.' || text[8] == ':');
    if (!has_form) {
        throw Malformed("a time such as 15:06:25.123456", in_quotes(text));
    }
    const uint64_t hours = rmm_number(text.substr(0, 2), "the hour");
    const uint64_t minutes = rmm_number(text.substr(3, 2), "the minute");
    const uint64_t seconds = rmm_number(text.substr(6, 2), "the second");
    return ((hours * 60 + minutes) * 60 + seconds) * 1'000'000 +
           rmm_number(text.substr(9), "the microsecond");
}

// Makes one time of the times of days: a log may go past midnight. Lines of several threads may be
// slightly out of order.
class Days {
public:
    uint64_t time(uint64_t of_day) {
        if (of_day + rmm_day / 2 < before_) {
            days_ += rmm_day;
        }
        before_ = of_day;
        return days_ + of_day;
    }

private:
    uint64_t before_ = 0, days_ = 0;
};

} // namespace

std::optional<RecordedEvent> rmm_event(std::string_view line) {
    const auto fields = rmm_fields(line);
    const bool is_free = fields[2] == "free";
    if (!is_free && fields[2] != "allocate" && fields[2] != "allocate failure") {
        throw Malformed("allocate, allocate failure or free", in_quotes(fields[2]));
    }
    RecordedEvent event;
    event.op = is_free ? Op::free : Op::alloc;
    event.thread = rmm_number(fields[0], "the thread");
    event.time = rmm_time(fields[1]);
    event.address = rmm_handle(fields[3], "the pointer");
    event.size = rmm_number(fields[4], "the size");
    event.stream = rmm_handle(fields[5], "the stream");
    if (fields[2] == "allocate failure" || event.address == 0) {
        return std::nullopt;
    }
    return event;
}

void RmmLog::visit(const Visit &visit) {
    LineFile file(path_, name_);
    Days days;
    file.where_it_is([&] {
        const std::string_view first = file.first();
        if (first != header) {
            throw Malformed("the header " + std::string(header), in_quotes(first));
        }
        file.each(
            [&](std::string_view line) {
                if (std::optional<RecordedEvent> event = rmm_event(line)) {
                    event->time = days.time(event->time);
                    visit(*event);
                }
            },
            report_);
    });
}

} // namespace emm::tool
