#include "options.h"

#include <string_view>

namespace emm::run {
namespace {

// Gives the item at `ret_begin`, and moves `ret_begin` behind its separator; npos after the last
// item.
std::string_view take_item(std::string_view list, char separator, size_t &ret_begin) {
    const size_t end = list.find(separator, ret_begin);
    const std::string_view item = list.substr(ret_begin, end - ret_begin);
    ret_begin = end == list.npos ? end : end + 1;
    return item;
}

// torch, cupy or torch+cupy. False: the list has another name, and `ret_caches` is invalid.
bool read_caches(std::string_view list, Caches &ret_caches) {
    for (size_t begin = 0; begin != list.npos;) {
        const Caches named = cache_named(take_item(list, '+', begin));
        if (named == no_caches) {
            return false;
        }
        ret_caches |= named;
    }
    return true;
}

bool read_option(std::string_view item, Options &options) {
    constexpr std::string_view release = "release=";
    if (item == "sync-free") {
        options.sync_free = true;
    } else if (item == "zero") {
        options.zero = true;
    } else if (item.substr(0, release.size()) == release) {
        return read_caches(item.substr(release.size()), options.release);
    } else {
        return item == "no-children" || item == "pausable"; // the interposer's
    }
    return true;
}

} // namespace

bool read_options(const char *text, Options &ret_options, std::string &ret_problem) {
    const std::string_view list = text ? text : "";
    for (size_t begin = list.empty() ? list.npos : 0; begin != list.npos;) {
        const std::string_view item = take_item(list, ',', begin);
        if (!read_option(item, ret_options)) {
            ret_problem = "EMM_RUN: expected sync-free, zero, pausable, no-children and "
                          "release=torch+cupy, separated by commas, found '" +
                          std::string(item.substr(0, 100)) + "'";
            return false;
        }
    }
    return true;
}

} // namespace emm::run
