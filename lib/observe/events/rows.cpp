#include "observe/events/rows.h"

#include "observe/events/python_calls.h"
#include "observe/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fmt/format.h>

namespace emm::observe {
namespace {

std::string as_field(const std::string &text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
        return text;
    }
    std::string quoted = "\"";
    for (const char letter : text) {
        quoted += letter == '"' ? "\"\"" : std::string(1, letter);
    }
    return quoted + "\"";
}

} // namespace

void set_pool(EventRecord &record, std::string_view name, uint32_t cuda_context) noexcept {
    char *const to = reinterpret_cast<char *>(&record) + offsetof(EventRecord, address);
    std::memset(to, 0, longest_pool_name + 1);
    std::memcpy(to, name.data(), std::min(name.size(), longest_pool_name));
    record.type = EventType::pool;
    record.python = cuda_context;
}

std::string_view pool_name(const EventRecord &record) noexcept {
    const char *const from =
        reinterpret_cast<const char *>(&record) + offsetof(EventRecord, address);
    return {from, strnlen(from, longest_pool_name)};
}

void Locations::add(Module module) {
    modules_.push_back(std::move(module));
    known_.clear(); // an address may have belonged to another module
    known_of_python_.clear();
}

void Locations::add(std::string python_calls) {
    python_calls_.push_back(std::move(python_calls));
}

const std::string &Locations::of(uint64_t caller, uint32_t python) {
    if (python != 0 && python <= python_calls_.size()) {
        const auto [found, is_new] = known_of_python_.try_emplace({caller, python});
        if (is_new) {
            found->second = as_field(make(caller) + location_separator + python_calls_[python - 1]);
        }
        return found->second;
    }
    const auto [found, is_new] = known_.try_emplace(caller);
    if (is_new) {
        found->second = as_field(make(caller));
    }
    return found->second;
}

std::string Locations::make(uint64_t caller) const {
    for (auto module = modules_.rbegin(); module != modules_.rend(); ++module) {
        if (module->holds(caller)) {
            const std::string symbol = symbol_at(module->path, caller - module->base);
            return one_line(fmt::format("{}+{:#x}{}", module->path, caller - module->base,
                                        symbol.empty() ? "" : " (" + symbol + ")"));
        }
    }
    return fmt::format("{:#x}", caller);
}

namespace {

void append_number(std::string &text, uint64_t number, int base = 10) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number, base).ptr;
    text.append(digits, static_cast<size_t>(end - digits));
}

void append_address(std::string &text, uint64_t address) {
    text += "0x";
    append_number(text, address, 16);
}

// Writes a stream's handle; the default stream as 0, no stream as -1.
void append_stream(std::string &text, uint64_t stream) {
    if (stream == ~uint64_t(0)) {
        text += "-1";
    } else if (stream == 0) {
        text += '0';
    } else {
        append_address(text, stream);
    }
}

void append_seconds(std::string &text, uint64_t nanoseconds) {
    constexpr uint64_t second = 1'000'000'000;
    append_number(text, nanoseconds / second);
    char digits[10] = ".";
    for (uint64_t left = nanoseconds % second, i = 9; i > 0; --i, left /= 10) {
        digits[i] = static_cast<char>('0' + left % 10);
    }
    text.append(digits, sizeof digits);
}

// A block's key, the same at its allocation and at its free: its address and its kind of memory.
uint64_t key_of(uint64_t address, EventType type) {
    return address << 2 | (static_cast<unsigned>(type) / 2 & 3);
}

std::array<std::string_view, 8> first_fields(std::string_view row) {
    std::array<std::string_view, 8> fields;
    for (std::string_view &field : fields) {
        field = row.substr(0, row.find(','));
        row.remove_prefix(std::min(field.size() + 1, row.size()));
    }
    return fields;
}

std::string pool_text(const EventRecord &record) {
    return as_field(one_line(fmt::format("{} (context {})", pool_name(record), record.python)));
}

uint64_t number_in(std::string_view field) {
    const bool is_address = field.substr(0, 2) == "0x";
    field.remove_prefix(is_address ? 2 : 0);
    uint64_t number = 0;
    std::from_chars(field.data(), field.data() + field.size(), number, is_address ? 16 : 10);
    return number;
}

} // namespace

// Correct for up to 292 years.
uint64_t Rows::nanoseconds(uint64_t ticks) const {
    constexpr double most = 9.2e18;
    return ticks < first_ ? 0
                          : static_cast<uint64_t>(
                                std::min(static_cast<double>(ticks - first_) * scale_, most));
}

void Rows::append(const EventRecord &record, std::string &text) {
    if (record.type > EventType::pool) {
        return; // no checked spool has such a device
    }
    if (record.type == EventType::context) {
        Device &device = devices_[record.device];
        device.free_at_first = record.address + device.used;
        device.total = record.size;
        return;
    }
    const uint64_t size = account(record);
    const Device &device = devices_[record.device];
    const uint64_t start = nanoseconds(record.start);
    const uint64_t end = std::max(start, nanoseconds(record.end));
    text += record.late ? "Late " : "";
    text += event_names[static_cast<size_t>(record.type)];
    text += record.status < 0 ? " Failure," : ",";
    append_number(text, record.device);
    text += ',';
    const bool is_pool = record.type == EventType::pool;
    append_address(text, is_pool ? 0 : record.address);
    text += ',';
    append_stream(text, is_pool ? ~uint64_t(0) : record.stream);
    for (const uint64_t number :
         {size, device.free_at_first - std::min(device.used, device.free_at_first), device.total,
          device.allocations}) {
        text += ',';
        append_number(text, number);
    }
    for (const uint64_t time : {start, end, end - start}) {
        text += ',';
        append_seconds(text, time);
    }
    text += ',';
    text += is_pool ? pool_text(record) : locations_.of(record.caller, record.python);
    text += ',';
    append_number(text, record.context);
    text += '\n';
}

// Returns the size to be shown.
uint64_t Rows::account(const EventRecord &record) {
    if (record.type == EventType::pool) {
        return 0;
    }
    if (record.status < 0 || record.late) {
        return record.size;
    }
    if (is_allocation(record.type)) {
        take(record);
    } else if (is_free(record.type)) {
        const auto found = live_.find(key_of(record.address, record.type));
        if (found != live_.end()) {
            const uint64_t size = found->second.size;
            give_back(found);
            return size;
        }
    } else if (record.type == EventType::reset || record.type == EventType::retire) {
        drop_all(record);
    }
    return record.size;
}

void Rows::take(const EventRecord &record) {
    const uint64_t key = key_of(record.address, record.type);
    const auto before = live_.find(key);
    if (before != live_.end()) {
        give_back(before); // the plugin has given the address out twice
    }
    live_[key] = {record.size, record.context, record.device, record.type};
    Device &device = devices_[record.device];
    device.allocations++;
    device.used += record.type == EventType::alloc ? record.size : 0;
}

void Rows::give_back(std::unordered_map<uint64_t, Live>::iterator block) {
    Device &device = devices_[block->second.device];
    device.allocations--;
    device.used -= block->second.type == EventType::alloc ? block->second.size : 0;
    live_.erase(block);
}

void Rows::drop_all(const EventRecord &record) {
    for (auto block = live_.begin(); block != live_.end();) {
        const auto here = block++;
        const Live &live = here->second;
        if (live.device == record.device && live.context == record.context) {
            give_back(here);
        }
    }
}

void Rows::resume(std::string_view row) {
    const auto fields = first_fields(row);
    const auto name = std::find(std::begin(event_names), std::end(event_names), fields[0]);
    if (name == std::end(event_names)) {
        return; // the header, or a failure, which changed nothing
    }
    EventRecord record = {};
    record.type = static_cast<EventType>(name - std::begin(event_names));
    record.device = static_cast<uint16_t>(number_in(fields[1]));
    record.address = number_in(fields[2]);
    record.size = number_in(fields[4]);
    record.context = static_cast<uint32_t>(number_in(row.substr(row.rfind(',') + 1)));
    account(record);
    Device &device = devices_[record.device];
    device.free_at_first = number_in(fields[5]) + device.used;
    device.total = number_in(fields[6]);
}

} // namespace emm::observe
