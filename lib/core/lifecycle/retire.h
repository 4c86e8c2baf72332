#pragma once

#include <emm/emm.h>

// How a context's manager ends: by the program's wish, with the process, or after its CUDA context.
namespace emm::core {

// `caller` is for the event log.
emm_status retire(emm_context &context, const void *caller);
emm_status shut_down(const void *caller);

// Contexts that have died without being retired. The driver gives their addresses to others, so
// first of all none of them may hand out memory any more; then their managers are given up, except
// those that a call is inside of as far as can be known: the next look finds them again.
void retire_the_dead();

// A plugin's call below this one is to finish first: a reset that waited for it here would wait for
// ever. EMM_OK: there is none. `what` is the participle of the refusal: "reset".
emm_status expect_outside(const char *what);

} // namespace emm::core
