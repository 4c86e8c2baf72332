#include "call.h"

#include <pthread.h>

namespace emm::run {
namespace {

bool forked = false; // written by the only thread of a child

} // namespace

Entries driver_entries;

constinit thread_local int Turn::depth_ = 0;

bool Turn::is_forked_child() {
    return forked;
}

void Turn::watch_forks() {
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

} // namespace emm::run
