#include "observe/suggest.h"

#include <emm/plugin_helpers.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace emm::observe {
namespace {

// Optimal string alignment: counts insertions, deletions, replacements, and swaps of neighbours.
size_t distance(std::string_view a, std::string_view b) {
    std::vector<size_t> last(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < a.size(); ++i) {
        next[0] = i + 1;
        for (size_t j = 0; j < b.size(); ++j) {
            const size_t replaced = row[j] + (a[i] != b[j] ? 1 : 0);
            next[j + 1] = std::min({replaced, next[j] + 1, row[j + 1] + 1});
            if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
                next[j + 1] = std::min(next[j + 1], last[j - 1] + 1);
            }
        }
        std::swap(last, row);
        std::swap(row, next);
    }
    return row.back();
}

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(text.begin(), text.end(), result.begin(), [](char letter) {
        return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    });
    return result;
}

} // namespace

const std::string *closest(std::string_view text, const std::vector<std::string> &words) {
    constexpr size_t longest = 64; // of a name that may be misspelt; the cost is quadratic
    if (text.size() > longest) {
        return nullptr;
    }
    const std::string *best = nullptr;
    size_t best_distance = SIZE_MAX;
    for (const std::string &word : words) {
        const size_t slips = word.size() <= longest ? distance(lower(text), lower(word)) : SIZE_MAX;
        const size_t allowed = std::max(std::max(text.size(), word.size()) / 3, size_t{1});
        if (slips <= allowed && slips < std::min(best_distance, word.size())) {
            best = &word;
            best_distance = slips;
        }
    }
    return best;
}

std::string suggestion(std::string_view text, const std::vector<std::string> &words) {
    const std::string *const meant = closest(text, words);
    return meant ? "did you mean '" + *meant + "'?" : "";
}

std::string meant_size(const std::string &text) {
    const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const size_t begin = std::min(text.find_first_not_of(' ', digits), text.size());
    const std::string unit = lower(text.substr(begin));
    const size_t which = unit.empty() ? std::string::npos : std::string_view("kmgt").find(unit[0]);
    const std::string rest = unit.substr(std::min(unit.size(), size_t{1}));
    if (which == std::string::npos || (rest != "" && rest != "b" && rest != "ib")) {
        return "";
    }
    const std::string meant = text.substr(0, digits) + "KMGT"[which] + "iB";
    uint64_t bytes = 0;
    return emm_parse_size(meant.c_str(), &bytes) ? meant : "";
}

std::string listed(std::vector<std::string> words) {
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::string text;
    for (const std::string &word : words) {
        text += (text.empty() ? "" : ", ") + word;
    }
    return text;
}

} // namespace emm::observe
