#include "options.h"

#include <string_view>

namespace emm::run {
namespace {

// Up to the separator, which goes too.
std::string_view take_item(std::string_view &list, char separator) {
    const size_t end = list.find(separator);
    const std::string_view item = list.substr(0, end);
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    return item;
}

// torch, cupy or torch+cupy. False: it is neither, and `ret_caches` is of no use.
bool read_caches(std::string_view list, Caches &ret_caches) {
    if (list.empty() || list.back() == '+') {
        return false;
    }
    while (!list.empty()) {
        const Caches named = cache_named(take_item(list, '+'));
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
        return item == "no-children"; // the interposer's
    }
    return true;
}

} // namespace

bool read_options(const char *text, Options &ret_options, std::string &ret_problem) {
    std::string_view rest = text ? text : "";
    while (!rest.empty()) {
        const std::string_view item = take_item(rest, ',');
        if (!read_option(item, ret_options)) {
            ret_problem = "EMM_RUN: expected sync-free, zero, no-children and release=torch+cupy, "
                          "separated by commas, found '" +
                          std::string(item.substr(0, 100)) + "'";
            return false;
        }
    }
    return true;
}

} // namespace emm::run
