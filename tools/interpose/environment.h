// What the interposer reads from its environment, and takes out of it: no memory is allocated.
#pragma once

#include <stddef.h>

namespace emm::run {

// Whether `options`, separated by commas, has that one. NULL has none.
bool has_option(const char *options, const char *option);

// `list` without the items that are `item`, to `ret_list` of at least as many bytes with its end.
// True: there was one. Items are separated by any of `separators`.
bool without_item(const char *list, const char *item, const char *separators, char *ret_list);

} // namespace emm::run
