#include "options.h"

#include "observe/text.h"

#include <string_view>

namespace emm::run {
namespace {

// torch, cupy or torch+cupy. False: the list has another name, and `ret_caches` is invalid.
bool read_caches(std::string_view list, Caches &ret_caches) {
    for (const std::string &name : observe::split(list, '+')) {
        const Caches named = cache_named(name);
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
    if (!text || !*text) {
        return true;
    }
    for (const std::string &item : observe::split(text, ',')) {
        if (!read_option(item, ret_options)) {
            ret_problem = "EMM_RUN: expected sync-free, zero, pausable, no-children and "
                          "release=torch+cupy, separated by commas, found '" +
                          item.substr(0, 100) + "'";
            return false;
        }
    }
    return true;
}

} // namespace emm::run
