#include "options.h"

#include "entries.h"
#include "observe/suggest.h"
#include "observe/text.h"

#include <emm/plugin_helpers.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>

namespace simcuda {
namespace {

namespace observe = emm::observe;

using Setter = std::function<bool(Options &, std::string_view)>;

bool read_number(std::string_view text, auto &ret_number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret_number);
    return error == std::errc() && end == text.data() + text.size();
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

struct Key {
    std::string_view name;
    std::string takes;
    Setter set;
    std::vector<std::string> words = {}; // the values of a choice
};

template <typename Value>
Key choice(std::string_view name, Value Options::*member,
           std::vector<std::pair<std::string_view, Value>> choices) {
    Key key{name, "", [=](Options &options, std::string_view text) {
                for (const auto &[word, value] : choices) {
                    if (word == text) {
                        options.*member = value;
                        return true;
                    }
                }
                return false;
            }};
    for (const auto &[word, value] : choices) {
        const bool is_last = word == choices.back().first;
        key.takes += (key.words.empty() ? "" : is_last ? " or " : ", ") + std::string(word);
        key.words.emplace_back(word);
    }
    return key;
}

bool set_memory(Options &options, std::string_view text) {
    return emm_parse_size(std::string(text).c_str(), &options.memory) &&
           options.memory >= uint64_t(4) << 20;
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

const std::vector<Key> &keys() {
    static const std::vector<Key> all = {
        {"devices", "1 to 64", number(&Options::devices, 1, 64)},
        {"memory", "bytes of each device, KiB MiB GiB TiB, at least 4MiB", set_memory},
        choice("progress", &Options::progress,
               {{"eager", Progress::eager},
                {"lazy", Progress::lazy},
                {"random", Progress::random},
                {"timed", Progress::timed}}),
        {"seed", "a number", number(&Options::seed, 0)},
        {"duration", "0 to 1000000000 microseconds", number(&Options::duration, 0, 1000000000)},
        choice("race", &Options::abort_on_race, {{"abort", true}, {"count", false}}),
        choice("misuse", &Options::abort_on_misuse, {{"abort", true}, {"error", false}}),
        {"driver", "a CUDA version such as 12040", number(&Options::driver, 11030, 99990)},
        choice("peer", &Options::peers, {{"0", false}, {"1", true}}),
        choice("late", &Options::late, {{"0", false}, {"1", true}}),
        choice("mapping", &Options::mapping, {{"0", false}, {"1", true}}),
        choice("access", &Options::host_access, {{"0", false}, {"1", true}}),
        choice("kernels", &Options::kernels, {{"none", true}}),
        {"fail", "CALL@N, CALL@N+, CALL@N:CODE", add_fault},
        {"latency", "CALL:microseconds", add_latency},
    };
    return all;
}

std::vector<std::string> known_names() {
    std::vector<std::string> names;
    for (const Key &key : keys()) {
        names.emplace_back(key.name);
    }
    return names;
}

// The option that `name=value` was probably meant to be, both for a known option (`key`) and an
// unknown one; "": no guess.
std::string meant_by(const std::string &name, const std::string &value, const Key *key) {
    if (!key) {
        const std::vector<std::string> names = known_names();
        const std::string *const known = observe::closest(name, names);
        const std::string size = observe::meant_size(name);
        return known ? *known + "=" + value : size.empty() ? "" : "memory=" + size;
    }
    const std::string *const word = observe::closest(value, key->words);
    const std::string size = key->name == "memory" ? observe::meant_size(value) : "";
    return word ? name + "=" + *word : size.empty() ? "" : name + "=" + size;
}

std::string read_option(const std::string &option, Options &options) {
    const size_t equals = std::min(option.find('='), option.size());
    const std::string name = option.substr(0, equals);
    const std::string value = option.substr(std::min(equals + 1, option.size()));
    if (name.empty()) {
        return "EMM_SIM: expected NAME=VALUE between commas, found '" + option + "'";
    }
    const auto key = std::find_if(keys().begin(), keys().end(),
                                  [&](const Key &one) { return one.name == name; });
    const bool is_known = key != keys().end();
    if (is_known && equals < option.size() && key->set(options, value)) {
        return "";
    }
    const std::string meant = meant_by(name, value, is_known ? &*key : nullptr);
    return (is_known ? "EMM_SIM: " + name + " takes " + key->takes + ", found '" + option + "'"
                     : "EMM_SIM: unknown option '" + name + "'; known are " +
                           observe::listed(known_names())) +
           (meant.empty() || meant == option ? "" : "; did you mean '" + meant + "'?");
}

} // namespace

std::string read_options(const char *text, Options &options) {
    if (!text || !*text) {
        return "";
    }
    for (const std::string &option : observe::split(text, ',')) {
        if (const std::string wrong = read_option(option, options); !wrong.empty()) {
            return wrong;
        }
    }
    return "";
}

namespace {

bool takes_memory(std::string_view call) {
    static constexpr std::string_view names[] = {"cuMemAlloc",
                                                 "cuMemAllocPitch",
                                                 "cuMemAllocHost",
                                                 "cuMemHostAlloc",
                                                 "cuMemHostRegister",
                                                 "cuMemAllocManaged",
                                                 "cuMemAddressReserve",
                                                 "cuMemCreate",
                                                 "cuMemMap",
                                                 "cuMemSetAccess",
                                                 "cuMemAllocAsync",
                                                 "cuMemAllocFromPoolAsync",
                                                 "cuMemPoolCreate",
                                                 "cuArrayCreate",
                                                 "cuArray3DCreate",
                                                 "cuMipmappedArrayCreate",
                                                 "cuGraphAddMemAllocNode",
                                                 "cuCtxCreate",
                                                 "cuDevicePrimaryCtxRetain",
                                                 "cuStreamCreate",
                                                 "cuStreamCreateWithPriority",
                                                 "cuEventCreate",
                                                 "cuGraphCreate",
                                                 "cuGraphInstantiateWithFlags",
                                                 "cuUserObjectCreate",
                                                 "cuIpcOpenMemHandle"};
    return std::find(std::begin(names), std::end(names), call) != std::end(names);
}

} // namespace

std::string Faults::arm(std::string_view text) {
    const std::string wrong = "fail takes CALL@N, CALL@N+ or CALL@N:CODE, where CALL is the name "
                              "of an entry or any, and CODE a CUresult from 1 to 999; found '" +
                              std::string(text) + "'";
    Fault fault;
    const size_t at = text.find('@');
    if (at == text.npos) {
        return wrong;
    }
    fault.call = text.substr(0, at);
    std::string_view count = text.substr(at + 1);
    if (const size_t colon = count.find(':'); colon != count.npos) {
        if (!read_number(count.substr(colon + 1), fault.code) || fault.code <= 0 ||
            fault.code > CUDA_ERROR_UNKNOWN) {
            return wrong;
        }
        count = count.substr(0, colon);
    }
    if (!count.empty() && count.back() == '+') {
        fault.onwards = true;
        count.remove_suffix(1);
    }
    if (!read_number(count, fault.at) || fault.at == 0 ||
        (fault.call != "any" && !is_entry(fault.call))) {
        return wrong;
    }
    armed_.push_back(fault);
    return "";
}

CUresult Faults::next(const char *call) {
    CUresult result = CUDA_SUCCESS;
    for (Fault &fault : armed_) {
        if (fault.call != "any" && call != fault.call) {
            continue;
        }
        ++fault.calls;
        if (fault.calls == fault.at || (fault.onwards && fault.calls > fault.at)) {
            result = fault.code           ? static_cast<CUresult>(fault.code)
                     : takes_memory(call) ? CUDA_ERROR_OUT_OF_MEMORY
                                          : CUDA_ERROR_UNKNOWN;
        }
    }
    if (result != CUDA_SUCCESS) {
        ++injected_;
        ++injected_into_[call];
        last_ = call;
    }
    return result;
}

uint64_t Faults::injected(std::string_view call) const {
    const auto found = injected_into_.find(call);
    return found == injected_into_.end() ? 0 : found->second;
}

} // namespace simcuda
