// The settings of `emm run` for libemm-run, in EMM_RUN.
#pragma once

#include "caches.h"

#include <string>

namespace emm::run {

struct Options {
    bool sync_free = false; // a free waits for the work of the context, as the driver's does
    bool zero = false;      // the program gets memory that is zero
    Caches release = no_caches;
};

// False: `text` (NULL: no options) has an unknown option, and `ret_problem` says so in a sentence.
bool read_options(const char *text, Options &ret_options, std::string &ret_problem);

} // namespace emm::run
