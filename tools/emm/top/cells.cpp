#include "top/view.h"

#include "observe/text.h"

#include <clocale>
#include <cwchar>
#include <vector>

namespace emm::tool::top {
namespace {

struct Cell {
    std::string bytes;
    size_t width;
};

// A locale of the C library with UTF-8, whatever the user's.
class Utf8 {
public:
    Utf8() : made_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
        if (made_) {
            before_ = uselocale(made_);
        }
    }
    ~Utf8() {
        if (made_) {
            uselocale(before_);
            freelocale(made_);
        }
    }
    Utf8(const Utf8 &) = delete;
    Utf8 &operator=(const Utf8 &) = delete;

private:
    locale_t made_;
    locale_t before_ = nullptr;
};

// A cell for each character with a width.
std::vector<Cell> cells_of(std::string_view text) {
    const Utf8 locale;
    const std::string line = observe::one_line(text);
    std::vector<Cell> cells;
    std::mbstate_t state = {};
    for (size_t at = 0; at < line.size();) {
        wchar_t character = 0;
        const size_t got = std::mbrtowc(&character, line.data() + at, line.size() - at, &state);
        if (got == 0 || got > line.size() - at) { // without such a locale
            cells.push_back({"?", 1});
            state = {};
            ++at;
            continue;
        }
        if (const int width = wcwidth(character); width > 0) {
            cells.push_back({line.substr(at, got), static_cast<size_t>(width)});
        }
        at += got;
    }
    return cells;
}

size_t width_of_all(const std::vector<Cell> &cells) {
    size_t width = 0;
    for (const Cell &cell : cells) {
        width += cell.width;
    }
    return width;
}

} // namespace

size_t width_of(std::string_view text) {
    return width_of_all(cells_of(text));
}

std::string fitted(std::string_view text, size_t width, Fit fit) {
    const std::vector<Cell> cells = cells_of(text);
    const bool is_cut = width_of_all(cells) > width;
    const size_t most = is_cut ? width - (width > 0) : width;
    const size_t most_behind = is_cut && fit == Fit::middle ? most / 2 : 0;
    std::string before, behind;
    size_t used = 0;
    auto last = cells.end();
    for (; last != cells.begin() && used + (last - 1)->width <= most_behind; --last) {
        behind.insert(0, (last - 1)->bytes);
        used += (last - 1)->width;
    }
    for (auto each = cells.begin(); each != last && used + each->width <= most; ++each) {
        before += each->bytes;
        used += each->width;
    }
    if (is_cut && width > 0) {
        before += '~';
        ++used;
    }
    const std::string shown = before + behind, space(width - used, ' ');
    return fit == Fit::right ? space + shown : shown + space;
}

} // namespace emm::tool::top
