#include "call.h"

#include <pthread.h>

namespace emm::run {

Entries driver_entries;

constinit thread_local int Turn::depth_ = 0;
bool Turn::is_forked_child_ = false;

void Turn::watch_forks() {
    pthread_atfork(nullptr, nullptr, [] { is_forked_child_ = true; });
}

} // namespace emm::run
