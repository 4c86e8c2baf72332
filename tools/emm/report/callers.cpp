#include "report/callers.h"

#include "observe/callers/python_frames.h"
#include "observe/text.h"

#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>
#include <unordered_set>

namespace emm::tool {
namespace {

std::string without_offset(const std::string &function) {
    const size_t sign = function.rfind("+0x");
    const bool has_offset =
        sign != std::string::npos && sign > 0 &&
        function.find_first_not_of("0123456789abcdef", sign + 3) == std::string::npos;
    return has_offset ? function.substr(0, sign) : function;
}

// The program's own lines of a call site, the innermost first; if it has none, those of libraries.
std::vector<PythonCall> own_calls_of(CallSite site) {
    std::erase_if(site.calls, [](const PythonCall &call) { return call.is_compiled(); });
    std::vector<PythonCall> own;
    for (const PythonCall &call : site.calls) {
        if (!observe::is_installed_python(call.file)) {
            own.push_back(call);
        }
    }
    return own.empty() ? std::move(site.calls) : own;
}

std::string function_key(const PythonCall &call) {
    return call.file + ":" + call.function;
}

class Wrappers {
public:
    explicit Wrappers(const std::vector<std::vector<PythonCall>> &paths) {
        while (find_more(paths)) {
        }
    }

    // The first line outside of wrappers.
    size_t outside(const std::vector<PythonCall> &path) const {
        size_t at = 0;
        while (at + 1 < path.size() && wrappers_.contains(function_key(path[at]))) {
            at++;
        }
        return at;
    }

private:
    struct Uses {
        std::unordered_set<std::string> lines, callers;
    };

    bool find_more(const std::vector<std::vector<PythonCall>> &paths) {
        std::unordered_map<std::string, Uses> functions;
        for (const std::vector<PythonCall> &path : paths) {
            const size_t at = outside(path);
            if (at + 1 < path.size()) {
                Uses &uses = functions[function_key(path[at])];
                uses.lines.insert(path[at].line);
                uses.callers.insert(function_key(path[at + 1]) + ":" + path[at + 1].line);
            }
        }
        const size_t before = wrappers_.size();
        for (const auto &[function, uses] : functions) {
            if (uses.callers.size() > uses.lines.size()) {
                wrappers_.insert(function);
            }
        }
        return wrappers_.size() > before;
    }

    std::unordered_set<std::string> wrappers_;
};

} // namespace

uint32_t Labels::number_of(const std::string &text) {
    const auto [found, is_new] = numbers_.try_emplace(text, static_cast<uint32_t>(labels_.size()));
    if (is_new) {
        labels_.push_back(text);
    }
    return found->second;
}

std::string shown_label(const std::string &text) {
    return text.empty() ? "unknown" : observe::one_line(text);
}

std::string tag_label(const CallSite &site) {
    return site.tag.empty() ? "no tag" : observe::one_line(site.tag);
}

std::string compiled_caller(const CallSite &site) {
    return site.file.empty() ? site.function
                             : fmt::format("{} in {}", without_offset(site.function),
                                           site.file.substr(site.file.find_last_of('/') + 1));
}

Callers::Callers(const CallSites &sites) {
    std::vector<std::vector<PythonCall>> paths;
    std::vector<std::string> compiled;
    for (uint32_t number = 0; number < sites.size(); number++) {
        CallSite site = parts_of(sites.text(number));
        compiled.push_back(compiled_caller(site));
        paths.push_back(own_calls_of(std::move(site)));
    }
    const Wrappers wrappers(paths);
    Labels texts;
    for (size_t number = 0; number < paths.size(); number++) {
        const std::vector<PythonCall> &path = paths[number];
        has_python = has_python || !path.empty();
        of.push_back(texts.number_of(
            shown_label(path.empty() ? compiled[number] : text_of(path[wrappers.outside(path)]))));
    }
    labels = texts.take();
}

} // namespace emm::tool
