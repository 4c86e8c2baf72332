// The wrappers of the entries that are held while the process is paused from outside (held.txt).
#pragma once

#include "served.h"

namespace emm::run {

// The place of the entry with that symbol among those that are held, or held_count().
size_t held_by_symbol(const char *symbol);
size_t held_count();

// What is called behind the wrapper: the driver's own, or what serves in its place.
void set_behind(size_t held, Entry entry);

// What the program gets.
Entry wrapper_of(size_t held);

} // namespace emm::run
