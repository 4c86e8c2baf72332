#include "options.h"

#include <charconv>
#include <functional>
#include <string_view>

namespace simcuda {
namespace {

using Setter = std::function<bool(Options &, std::string_view)>;

bool read_number(std::string_view text, uint64_t &ret_number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret_number);
    return error == std::errc() && end == text.data() + text.size();
}

bool read_size(std::string_view text, uint64_t &ret_size) {
    int shift = 0;
    for (const auto &[unit, bits] : {std::pair{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}) {
        if (text.size() > 3 && text.substr(text.size() - 3) == unit) {
            text.remove_suffix(3);
            shift = bits;
        }
    }
    if (!read_number(text, ret_size)) {
        return false;
    }
    ret_size <<= shift;
    return ret_size > 0;
}

template <typename Number>
Setter number(Number Options::*member, uint64_t least, uint64_t most = ~uint64_t(0)) {
    return [=](Options &options, std::string_view text) {
        uint64_t value = 0;
        if (!read_number(text, value) || value < least || value > most) {
            return false;
        }
        options.*member = static_cast<Number>(value);
        return true;
    };
}

template <typename Value>
Setter choice(Value Options::*member, std::vector<std::pair<std::string_view, Value>> choices) {
    return [=](Options &options, std::string_view text) {
        for (const auto &[name, value] : choices) {
            if (name == text) {
                options.*member = value;
                return true;
            }
        }
        return false;
    };
}

bool set_memory(Options &options, std::string_view text) {
    return read_size(text, options.memory) && options.memory >= uint64_t(4) << 20;
}

bool add_fault(Options &options, std::string_view text) {
    options.faults.emplace_back(text);
    return true;
}

bool add_latency(Options &options, std::string_view text) {
    const size_t colon = text.find(':');
    uint64_t microseconds = 0;
    if (colon == text.npos || !read_number(text.substr(colon + 1), microseconds)) {
        return false;
    }
    options.latency[std::string(text.substr(0, colon))] = microseconds;
    return true;
}

struct Key {
    std::string_view name;
    std::string_view takes;
    Setter set;
};

const std::vector<Key> &keys() {
    static const std::vector<Key> all = {
        {"devices", "1 to 64", number(&Options::devices, 1, 64)},
        {"memory", "bytes of each device, KiB MiB GiB TiB, at least 4MiB", set_memory},
        {"progress", "eager, lazy, random or timed",
         choice(&Options::progress, {{"eager", Progress::eager},
                                     {"lazy", Progress::lazy},
                                     {"random", Progress::random},
                                     {"timed", Progress::timed}})},
        {"seed", "a number", number(&Options::seed, 0)},
        {"duration", "0 to 1000000000 microseconds", number(&Options::duration, 0, 1000000000)},
        {"race", "abort or count",
         choice(&Options::abort_on_race, {{"abort", true}, {"count", false}})},
        {"misuse", "abort or error",
         choice(&Options::abort_on_misuse, {{"abort", true}, {"error", false}})},
        {"driver", "a CUDA version such as 12040", number(&Options::driver, 11030, 99990)},
        {"peer", "0 or 1", choice(&Options::peers, {{"0", false}, {"1", true}})},
        {"late", "0 or 1", choice(&Options::late, {{"0", false}, {"1", true}})},
        {"mapping", "0 or 1", choice(&Options::mapping, {{"0", false}, {"1", true}})},
        {"access", "0 or 1", choice(&Options::host_access, {{"0", false}, {"1", true}})},
        {"fail", "CALL@N, CALL@N+, CALL@N:CODE", add_fault},
        {"latency", "CALL:microseconds", add_latency},
    };
    return all;
}

std::string known_keys() {
    std::string text;
    for (const Key &key : keys()) {
        text += (text.empty() ? "" : ", ") + std::string(key.name);
    }
    return text;
}

std::string read_option(std::string_view option, Options &options) {
    const size_t equals = option.find('=');
    const std::string_view name = option.substr(0, equals);
    for (const Key &key : keys()) {
        if (key.name != name) {
            continue;
        }
        if (equals == option.npos || !key.set(options, option.substr(equals + 1))) {
            return "EMM_SIM: " + std::string(name) + " takes " + std::string(key.takes) +
                   ", found '" + std::string(option) + "'";
        }
        return "";
    }
    if (name.empty()) {
        return "EMM_SIM: expected NAME=VALUE between commas, found '" + std::string(option) + "'";
    }
    return "EMM_SIM: unknown option '" + std::string(name) + "'; known are " + known_keys();
}

} // namespace

std::string read_options(const char *text, Options &options) {
    std::string_view rest = text ? text : "";
    std::string wrong;
    for (bool more = !rest.empty(); more && wrong.empty();) {
        const size_t comma = rest.find(',');
        wrong = read_option(rest.substr(0, comma), options);
        more = comma != rest.npos;
        rest.remove_prefix(more ? comma + 1 : 0);
    }
    return wrong;
}

} // namespace simcuda
