// The interposer's settings: read from its environment and taken out of it. Allocates no memory.
#pragma once

#include <stddef.h>

namespace emm::run {

// Whether `options`, separated by commas, has `option`. A NULL list has no options.
bool has_option(const char *options, const char *option);

// Copies `list` without the items that equal `item` to `ret_list`, which has room for all of `list`
// and its end. True: the list had such an item. Items are separated by any of `separators`.
bool without_item(const char *list, const char *item, const char *separators, char *ret_list);

} // namespace emm::run
