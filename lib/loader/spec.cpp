#include "loader/spec.h"

#include "loader/refusal.h"
#include "loader/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace emm::loader {
namespace {

constexpr std::string_view escape_list = "%3A %3B %2C %3D %25 or %2B";

bool is_control(char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}
bool is_delimiter(char c) {
    return c == ':' || c == ';' || c == ',' || c == '=';
}
bool is_key(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}
char upper(char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

// Recursive descent; each rule returns a status, and the first failing rule describes itself.
class Parser {
public:
    explicit Parser(std::string_view text) : text_(text) {}

    emm_status specs(std::vector<Spec> &ret) {
        do {
            Spec spec;
            EMM_TRY(one_spec(spec));
            ret.push_back(std::move(spec));
        } while (take(';'));
        if (at_end()) {
            return EMM_OK;
        }
        return ret.back().settings.empty() ? unexpected("':', ';' or the end after the plugin")
                                           : unexpected("',', ';' or the end after the value");
    }

    emm_status settings_alone(std::vector<Setting> &ret) {
        EMM_TRY(settings(ret));
        return at_end() ? EMM_OK : unexpected("',' or the end after the value");
    }

private:
    emm_status settings(std::vector<Setting> &ret) {
        do {
            const size_t start = position_;
            Setting setting;
            EMM_TRY(one_setting(setting));
            if (std::any_of(ret.begin(), ret.end(),
                            [&](const Setting &other) { return other.key == setting.key; })) {
                return fail(start, "each option once", "'" + setting.key + "' again");
            }
            ret.push_back(std::move(setting));
        } while (take(','));
        return EMM_OK;
    }

    emm_status one_spec(Spec &ret) {
        const size_t start = position_;
        const std::string_view stack = text_.substr(start, text_.find(';', start) - start);
        plugin_ = start + find_plugin(stack);
        while (position_ < plugin_) {
            EMM_TRY(part("a layer's name", ret.layers.emplace_back()));
            if (!take('+')) {
                return unexpected("':' or '+' after the layer");
            }
        }
        EMM_TRY(part("a plugin's name or absolute path", ret));
        ret.text = text_.substr(start, position_ - start);
        return EMM_OK;
    }

    emm_status part(const char *what, Spec &ret) {
        const size_t start = position_;
        EMM_TRY(word(what, ret.name));
        ret.is_path = ret.name.front() == '/';
        if (take(':')) {
            after_path_ = ret.is_path;
            EMM_TRY(settings(ret.settings));
            after_path_ = false;
        }
        ret.text = text_.substr(start, position_ - start);
        return EMM_OK;
    }

    emm_status one_setting(Setting &ret) {
        const size_t start = position_;
        while (!at_end() && is_key(text_[position_])) {
            ++position_;
        }
        ret.key = text_.substr(start, position_ - start);
        if (ret.key.empty()) {
            return fail(position_, "an option's name (lower-case letters, digits and '_')",
                        found());
        }
        if (!take('=')) {
            return fail(position_, "'=' and a value after '" + ret.key + "'", found());
        }
        return decoded(ret.value);
    }

    emm_status word(const char *what, std::string &ret) {
        const size_t start = position_;
        EMM_TRY(decoded(ret));
        if (!ret.empty()) {
            return EMM_OK;
        }
        return at_separator() ? unexpected(what) : fail(start, what, found());
    }

    // Everything up to the next delimiter.
    emm_status decoded(std::string &ret) {
        while (!at_end() && !is_delimiter(text_[position_]) && !at_separator()) {
            const char c = text_[position_];
            if (is_control(c)) {
                return fail(position_, "a printable character", found());
            }
            if (c != '%') {
                ret += c;
                ++position_;
            } else
                EMM_TRY(escape(ret));
        }
        return EMM_OK;
    }

    emm_status escape(std::string &ret) {
        std::string code(text_.substr(position_, 3));
        std::transform(code.begin(), code.end(), code.begin(), upper);
        for (const Escape &known : escapes) {
            if (code == known.code) {
                ret += known.character;
                position_ += code.size();
                return EMM_OK;
            }
        }
        return fail(position_, std::string(escape_list), "'" + code + "'");
    }

    bool at_end() const { return position_ == text_.size(); }

    // At a '+' that ends a layer. A later '+' belongs to the plugin.
    bool at_separator() const { return position_ < plugin_ && text_[position_] == '+'; }

    bool take(char c) {
        if (at_end() || text_[position_] != c) {
            return false;
        }
        ++position_;
        return true;
    }

    std::string found() const {
        if (at_end()) {
            return "the end";
        }
        const char c = text_[position_];
        return is_control(c) ? fmt::format("character {}", static_cast<unsigned char>(c))
                             : fmt::format("'{}'", c);
    }

    // A delimiter at a place where none may stand.
    emm_status unexpected(const char *expected) const {
        const char c = text_[position_];
        return fail(position_, expected, found(),
                    fmt::format("inside a path or a value, '{}' is written {}", c,
                                encode(std::string_view(&c, 1))));
    }

    emm_status fail(size_t position, std::string expected, std::string got,
                    std::string hint = "") const {
        if (hint.empty() && after_path_) {
            hint = "if the ':' belongs to the path, it is written %3A";
        }
        return refuse({.code = EMM_E_PLUGIN_SPEC,
                       .stage = "parse",
                       .problem = fmt::format("plugin spec '{}', column {}", text_, position + 1),
                       .expected = std::move(expected),
                       .got = std::move(got),
                       .hint = std::move(hint)});
    }

    std::string_view text_;
    size_t position_ = 0;
    size_t plugin_ = 0;       // where the plugin of this spec begins
    bool after_path_ = false; // within the settings of a plugin that was named by its path
};

} // namespace

emm_status parse_specs(std::string_view text, std::vector<Spec> &ret_specs) {
    std::vector<Spec> specs;
    EMM_TRY(Parser(text).specs(specs));
    ret_specs = std::move(specs);
    return EMM_OK;
}

emm_status parse_settings(std::string_view text, std::vector<Setting> &ret_settings) {
    std::vector<Setting> settings;
    if (!text.empty()) {
        EMM_TRY(Parser(text).settings_alone(settings));
    }
    ret_settings = std::move(settings);
    return EMM_OK;
}

} // namespace emm::loader
