// The wrappers of the entries that are held while the process is paused from outside (held.txt).
#pragma once

#include "served.h"

namespace emm::run {

// The place of the entry with that symbol among the held entries, or held_count().
size_t held_by_symbol(const char *symbol);
size_t held_count();

// Sets the function behind the wrapper: the driver's own, or emm's in its place.
void set_behind(size_t held, Entry entry);

// The function that the program gets.
Entry wrapper_of(size_t held);

} // namespace emm::run
