#include "loader/options.h"

#include "dl/trust.h"
#include "loader/refusal.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/running.h"
#include "observe/suggest.h"
#include "observe/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <unistd.h>

namespace emm::loader {
namespace {

// A bound for lists that lack the NULL name at the end.
constexpr size_t most_options = 256;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool all_digits(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

bool is_count(std::string_view text) {
    return all_digits(text) && text.size() <= 18; // 18 digits always fit in 64 bits
}

bool is_number(std::string_view text) {
    const size_t point = text.find('.');
    return all_digits(text.substr(0, point)) &&
           (point == std::string_view::npos || all_digits(text.substr(point + 1)));
}

// The value of a text that is_count or is_number accepts. Unlike strtod, the function knows no
// locale.
long double number(std::string_view text) {
    long double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

std::vector<std::string> choices(std::string_view list) {
    return observe::split(list, '|');
}

bool is_choice(const char *list, const std::string &word) {
    const std::vector<std::string> words = choices(list);
    return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_valid(const emm_option &option, const std::string &value) {
    uint64_t bytes;
    switch (option.kind) {
    case EMM_OPTION_SIZE:
        return emm_parse_size(value.c_str(), &bytes) != 0;
    case EMM_OPTION_COUNT:
        return is_count(value);
    case EMM_OPTION_NUMBER:
        return is_number(value);
    case EMM_OPTION_FLAG:
        return value == "0" || value == "1";
    case EMM_OPTION_CHOICE:
        return is_choice(option.default_value, value);
    case EMM_OPTION_LIBRARY:
        return value[0] == '/';
    default:
        return true;
    }
}

std::string expected_value(const emm_option &option) {
    switch (option.kind) {
    case EMM_OPTION_SIZE:
        return "a size such as 4096, 64KiB or 1.5GiB";
    case EMM_OPTION_COUNT:
        return "a whole number such as 16";
    case EMM_OPTION_NUMBER:
        return "a decimal number such as 0.5";
    case EMM_OPTION_FLAG:
        return "0 or 1";
    case EMM_OPTION_CHOICE:
        return "one of " + observe::listed(choices(option.default_value));
    case EMM_OPTION_LIBRARY:
        return "the absolute path of a library";
    default:
        return "a text";
    }
}

bool is_name(std::string_view name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || is_digit(c) || c == '_';
    });
}

std::vector<std::string> names(const std::vector<emm_option> &options) {
    std::vector<std::string> list;
    for (const emm_option &option : options) {
        if (option.name) {
            list.emplace_back(option.name);
        }
    }
    return list;
}

emm_status check_choices(const Plugin &plugin, const emm_option &option) {
    const std::vector<std::string> words =
        choices(option.default_value ? option.default_value : "");
    if (std::find(words.begin(), words.end(), "") == words.end()) {
        return EMM_OK;
    }
    return refuse_table(plugin.path, fmt::format("option '{}' has an empty choice", option.name),
                        "words such as a|b|c",
                        option.default_value ? fmt::format("'{}'", option.default_value) : "NULL");
}

emm_status check_option(const Plugin &plugin, const emm_option &option) {
    if (!is_name(option.name)) {
        return refuse_table(plugin.path, "an option has an invalid name",
                            "lower-case letters, digits and '_'", fmt::format("'{}'", option.name));
    }
    const std::string what = fmt::format("option '{}'", option.name);
    const std::vector<std::string> before = names(plugin.options);
    if (std::find(before.begin(), before.end(), option.name) != before.end()) {
        return refuse_table(plugin.path, what + " is listed twice", "", "");
    }
    // A plugin with a newer minor may have kinds that only a newer host checks.
    const bool known = option.kind >= EMM_OPTION_TEXT && option.kind <= EMM_OPTION_LIBRARY;
    if (!known && plugin.abi_minor <= EMM_PLUGIN_ABI_MINOR) {
        return refuse_table(plugin.path, what + " is of an unknown kind", "1 to 7 (EMM_OPTION_*)",
                            fmt::format("{}", option.kind));
    }
    if (option.kind == EMM_OPTION_CHOICE) {
        return check_choices(plugin, option);
    }
    if (option.default_value && !is_valid(option, option.default_value)) {
        return refuse_table(plugin.path, what + " has a bad default", expected_value(option),
                            fmt::format("'{}'", option.default_value));
    }
    return EMM_OK;
}

emm_status refuse_unknown(const Plugin &plugin, const std::string &key) {
    const std::vector<std::string> known = names(plugin.options);
    return refuse(
        {.code = EMM_E_PLUGIN_SPEC,
         .stage = "validate",
         .path = plugin.path,
         .problem = fmt::format("{} '{}' has no option '{}'", plugin.kind(), plugin.name, key),
         .expected = known.empty() ? "no options" : "one of " + observe::listed(known),
         .hint = observe::suggestion(key, known)});
}

bool may_change(const emm_option &option) {
    return (option.reserved & EMM_OPTION_CHANGES) != 0;
}

emm_status refuse_fixed(const Plugin &plugin, const emm_option &fixed) {
    std::vector<std::string> changing;
    for (const emm_option &option : plugin.options) {
        if (option.name && may_change(option)) {
            changing.emplace_back(option.name);
        }
    }
    return refuse(
        {.code = EMM_E_NOT_SUPPORTED,
         .stage = "validate",
         .path = plugin.path,
         .problem = fmt::format("option '{}' of plugin '{}' cannot change while it serves",
                                fixed.name, plugin.name),
         .expected = changing.empty() ? "no change" : "one of " + observe::listed(changing)});
}

emm_status find_option(const Plugin &plugin, const std::string &key, size_t &ret_index) {
    for (size_t i = 0; plugin.options[i].name; i++) {
        if (key == plugin.options[i].name) {
            ret_index = i;
            return EMM_OK;
        }
    }
    return refuse_unknown(plugin, key);
}

// Whether the value is a number of the right form that the host cannot pass on.
bool is_too_large(const emm_option &option, const std::string &value) {
    if (option.kind == EMM_OPTION_COUNT) {
        return all_digits(value);
    }
    const size_t digits = std::min(value.find_first_not_of("0123456789"), value.size());
    const std::string one = "1" + value.substr(digits);
    uint64_t bytes = 0;
    return option.kind == EMM_OPTION_SIZE && digits > 0 && emm_parse_size(one.c_str(), &bytes);
}

// "did you mean '8MiB'?", or else the option's purpose.
std::string hint_at_value(const emm_option &option, const std::string &value) {
    std::string hint;
    if (option.kind == EMM_OPTION_CHOICE) {
        hint = observe::suggestion(value, choices(option.default_value));
    } else if (option.kind == EMM_OPTION_SIZE) {
        const std::string meant = observe::meant_size(value);
        hint = meant.empty() ? "" : "did you mean '" + meant + "'?";
    }
    return hint.empty() && option.help ? fmt::format("{}: {}", option.name, option.help) : hint;
}

emm_status refuse_value(const Plugin &plugin, const emm_option &option, const Setting &setting) {
    const bool too_large = is_too_large(option, setting.value);
    const char *const most =
        option.kind == EMM_OPTION_SIZE ? "a size below 2^63 bytes" : "at most 18 digits";
    return refuse({.code = EMM_E_PLUGIN_SPEC,
                   .stage = "validate",
                   .path = plugin.path,
                   .problem = fmt::format("option '{}' of {} '{}'{}", setting.key, plugin.kind(),
                                          plugin.name, too_large ? " is too large" : ""),
                   .expected = too_large ? most : expected_value(option),
                   .got = "'" + setting.value + "'",
                   .hint = hint_at_value(option, setting.value)});
}

// Checks the library by the rule for plugins.
emm_status check_library(const Plugin &plugin, const Setting &setting) {
    std::string lifted;
    const std::string why = dl::refusal_of(setting.value, geteuid(),
                                           observe::setting("EMM_ALLOW_UNTRUSTED") == "1", lifted);
    if (!lifted.empty()) {
        observe::log(EMM_LOG_WARN, "library {}: {}; loaded because EMM_ALLOW_UNTRUSTED=1",
                     setting.value, lifted);
    }
    return why.empty()
               ? EMM_OK
               : refuse({.code = EMM_E_PLUGIN_UNTRUSTED,
                         .stage = "permission",
                         .path = plugin.path,
                         .problem = fmt::format("option '{}' of {} '{}': {}: {}", setting.key,
                                                plugin.kind(), plugin.name, setting.value, why)});
}

emm_status check_value(const Plugin &plugin, size_t index, const Setting &setting) {
    const emm_option &option = plugin.options[index];
    if (!is_valid(option, setting.value)) {
        return refuse_value(plugin, option, setting);
    }
    return option.kind == EMM_OPTION_LIBRARY ? check_library(plugin, setting) : EMM_OK;
}

// Keeps one copy of each text, never freed.
const char *keep(const std::string &text) {
    static std::mutex mutex;
    static auto *const texts = new std::set<std::string>;
    std::lock_guard lock(mutex);
    return texts->insert(text).first->c_str();
}

const char *default_text(const emm_option &option, const char *text) {
    return option.kind == EMM_OPTION_CHOICE ? keep(choices(text).front()) : text;
}

const char *shown(const char *text) {
    return !text || observe::is_one_line(text) ? text : keep(observe::one_line(text));
}

emm_status refuse_stray(const Plugin &plugin, std::string what) {
    return refuse_table(plugin.path, std::move(what),
                        "the plugin's static data, texts with a NUL at the end",
                        "an address elsewhere");
}

// The option's memory is checked before it is read, and so are its texts.
emm_status check_memory(const Mapped &memory, const Plugin &plugin, const emm_option *option) {
    if (!memory.holds(option, sizeof *option)) {
        return refuse_stray(plugin,
                            "its list of options is outside the plugin's data, or has no end");
    }
    for (const char *const text : {option->name, option->default_value, option->help}) {
        if (text && option->name && !memory.text(text)) {
            return refuse_stray(plugin,
                                fmt::format("a text of option {} is outside the plugin's data",
                                            plugin.options.size() + 1));
        }
    }
    return EMM_OK;
}

// The text that the plugin passed to host->fail is this thread's last error by now.
emm_status refuse_by_plugin(const Plugin &plugin, emm_status code) {
    const emm_error &error = *observe::last_error();
    return refuse({.code = code,
                   .stage = "validate",
                   .path = plugin.path,
                   .problem = std::string(error.text),
                   .driver_result = error.driver_result});
}

} // namespace

emm_status check_options(const Mapped &memory, const emm_option *options, Plugin &ret_plugin) {
    for (const emm_option *option = options; option; ++option) {
        if (ret_plugin.options.size() == most_options) {
            return refuse_table(
                ret_plugin.path,
                fmt::format("its list of options has no end: none of {} names is NULL",
                            most_options),
                "", "");
        }
        EMM_TRY(check_memory(memory, ret_plugin, option));
        if (!option->name) {
            break;
        }
        EMM_TRY(check_option(ret_plugin, *option));
        ret_plugin.default_texts.push_back(option->default_value);
        ret_plugin.options.push_back(*option);
        ret_plugin.options.back().default_value = shown(option->default_value);
        ret_plugin.options.back().help = shown(option->help);
        ret_plugin.options.back().reserved = ret_plugin.abi_minor < 2 ? 0 : option->reserved;
    }
    ret_plugin.options.push_back({});
    ret_plugin.default_texts.push_back(nullptr);
    return EMM_OK;
}

std::vector<const char *> default_values(const Plugin &plugin) {
    std::vector<const char *> texts;
    for (size_t i = 0; i < plugin.options.size(); ++i) {
        texts.push_back(default_text(plugin.options[i], plugin.default_texts[i]));
    }
    return texts;
}

emm_status apply_settings(const Plugin &plugin, const std::vector<Setting> &settings,
                          std::vector<const char *> &texts) {
    for (const Setting &setting : settings) {
        size_t index = 0;
        EMM_TRY(find_option(plugin, setting.key, index));
        EMM_TRY(check_value(plugin, index, setting));
        texts[index] = keep(setting.value);
    }
    return EMM_OK;
}

emm_status check_change(const Plugin &plugin, const char *key, const char *text,
                        const char *&ret_text) {
    size_t index = 0;
    EMM_TRY(find_option(plugin, key, index));
    const emm_option &option = plugin.options[index];
    if (!may_change(option)) {
        return refuse_fixed(plugin, option);
    }
    if (text) {
        EMM_TRY(check_value(plugin, index, {key, text}));
    }
    ret_text = text ? text : default_text(option, plugin.default_texts[index]);
    return EMM_OK;
}

bool is_same_value(const emm_option &option, const char *one, const char *other) noexcept {
    if (!one || !other) {
        return one == other;
    }
    uint64_t bytes = 0, other_bytes = 0;
    switch (option.kind) {
    case EMM_OPTION_SIZE:
        return emm_parse_size(one, &bytes) && emm_parse_size(other, &other_bytes) &&
               bytes == other_bytes;
    case EMM_OPTION_COUNT:
    case EMM_OPTION_NUMBER:
        return number(one) == number(other);
    default:
        return std::strcmp(one, other) == 0;
    }
}

emm_status check_values(const Plugin &plugin, const emm_host &host,
                        const std::vector<const char *> &texts) {
    if (plugin.defaults(Slot::check_options)) {
        return EMM_OK;
    }
    const char *const slot = slot_names[static_cast<unsigned>(Slot::check_options)];
    const observe::Running running(plugin.running_text(Slot::check_options));
    observe::take_plugin_word(); // an older word
    try {
        const emm_status status = plugin.table.check_options(&host, texts.data());
        return status >= EMM_OK ? EMM_OK
                                : refuse_by_plugin(plugin, observe::describe(status, slot));
    } catch (...) {
        return refuse({.code = EMM_E_PLUGIN_EXCEPTION,
                       .stage = "validate",
                       .path = plugin.path,
                       .problem = "check_options failed",
                       .expected = "a status",
                       .got = fmt::format("a C++ exception: {}", observe::what_is_thrown()),
                       .hint = "a plugin's function must not throw"});
    }
}

} // namespace emm::loader
