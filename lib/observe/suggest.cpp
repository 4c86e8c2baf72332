#include "observe/suggest.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace emm::observe {
namespace {

// Optimal string alignment: insertions, deletions, replacements, and neighbours that changed
// places.
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

std::string suggestion(std::string_view text, const std::vector<std::string> &words) {
    constexpr size_t longest = 64; // of a name that may be misspelt; the distance is quadratic
    if (text.size() > longest) {
        return "";
    }
    const std::string *best = nullptr;
    size_t best_distance = SIZE_MAX;
    for (const std::string &word : words) {
        const size_t slips = word.size() <= longest ? distance(lower(text), lower(word)) : SIZE_MAX;
        const size_t allowed = std::max(std::max(text.size(), word.size()) / 3, size_t{1});
        if (slips <= allowed && slips < best_distance) {
            best = &word;
            best_distance = slips;
        }
    }
    return best ? "did you mean '" + *best + "'?" : "";
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
