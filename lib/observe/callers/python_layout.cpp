#include "observe/callers/python_layout.h"

#include <charconv>
#include <iterator>
#include <string_view>

namespace emm::observe {
namespace {

constexpr int first_minor = 9;
// Values of offsetof in CPython's headers: cpython/pystate.h, internal/pycore_frame.h (before 3.11
// cpython/frameobject.h) and cpython/code.h. tests/code/python_layouts.py compares them with those
// of each interpreter that it finds.
constexpr PythonLayout layouts[] = {
    // state_frame, is_behind, behind_frame, previous, code, owner, instruction, instructions, file,
    // name, line
    {24, false, 0, 24, 32, 0, 0, 0, 104, 112, 40},   // 3.9
    {24, false, 0, 24, 32, 0, 0, 0, 104, 112, 40},   // 3.10
    {56, true, 8, 48, 32, 0, 56, 184, 112, 128, 72}, // 3.11
    {56, true, 0, 8, 0, 70, 56, 192, 112, 128, 68},  // 3.12
    {72, false, 0, 8, 0, 70, 56, 200, 112, 128, 68}, // 3.13
};

bool take_number(std::string_view &text, int &ret_number) noexcept {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret_number);
    text.remove_prefix(error == std::errc() ? static_cast<size_t>(end - text.data()) : 0);
    return error == std::errc();
}

bool take(std::string_view &text, char letter) noexcept {
    const bool is_there = !text.empty() && text.front() == letter;
    text.remove_prefix(is_there ? 1 : 0);
    return is_there;
}

} // namespace

const PythonLayout *python_layout(const char *version) noexcept {
    std::string_view text = version ? version : "";
    int major = 0, minor = 0, micro = 0;
    const bool is_release = take_number(text, major) && take(text, '.') &&
                            take_number(text, minor) && take(text, '.') &&
                            take_number(text, micro) && (take(text, ' ') || take(text, '+'));
    const bool has_lock = text.find("free-threading") == std::string_view::npos;
    const int row = minor - first_minor;
    const bool is_known = major == 3 && row >= 0 && row < static_cast<int>(std::size(layouts));
    return sizeof(void *) == 8 && is_release && has_lock && is_known ? &layouts[row] : nullptr;
}

const void *innermost_frame(const PythonLayout &layout, const void *thread_state) noexcept {
    const void *const found = pointer_at(thread_state, layout.state_frame);
    return found && layout.is_behind ? pointer_at(found, layout.behind_frame) : found;
}

bool is_call(const PythonLayout &layout, const void *frame) noexcept {
    constexpr char owned_by_c = 3;
    return layout.owner == 0 || value_at<char>(frame, layout.owner) != owned_by_c;
}

} // namespace emm::observe
