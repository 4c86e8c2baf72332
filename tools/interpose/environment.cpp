#include "environment.h"

#include <string.h>

namespace emm::run {
namespace {

bool is_item(const char *begin, size_t length, const char *item) {
    return strlen(item) == length && memcmp(begin, item, length) == 0;
}

} // namespace

bool has_option(const char *options, const char *option) {
    for (const char *at = options; at && *at;) {
        const size_t length = strcspn(at, ",");
        if (is_item(at, length, option)) {
            return true;
        }
        at += length + (at[length] != 0);
    }
    return false;
}

bool without_item(const char *list, const char *item, const char *separators, char *ret_list) {
    bool found = false;
    char *end = ret_list;
    for (const char *at = list; *at;) {
        const size_t length = strcspn(at, separators);
        const size_t whole = length + (at[length] != 0);
        if (is_item(at, length, item)) {
            found = true;
        } else {
            memcpy(end, at, whole);
            end += whole;
        }
        at += whole;
    }
    if (found && end != ret_list && strchr(separators, end[-1])) {
        end--; // the separator before the last item
    }
    *end = 0;
    return found;
}

} // namespace emm::run
