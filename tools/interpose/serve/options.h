// EMM_RUN: what `emm run` asks of libemm-run.
#pragma once

#include "caches.h"

#include <string>

namespace emm::run {

struct Options {
    bool sync_free = false; // a free waits for the work of the context, as the driver's does
    bool zero = false;      // memory is zero when the program gets it
    Caches release = no_caches;
};

// False: `text` (NULL: no options) has one that is none, and `ret_problem` says so in a sentence.
bool read_options(const char *text, Options &ret_options, std::string &ret_problem);

} // namespace emm::run
