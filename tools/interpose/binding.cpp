#include "binding.h"

#include <errno.h>
#include <pthread.h>

namespace emm::run {
namespace {

bool bound = false;

} // namespace

void bind_once() {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int error = errno;
    pthread_once(&once, bind_all);
    __atomic_store_n(&bound, true, __ATOMIC_RELAXED);
    errno = error;
}

bool is_bound() {
    return __atomic_load_n(&bound, __ATOMIC_RELAXED);
}

// Called by the trampolines. Gives the target of the entry with that index.
extern "C" Entry emm_run_bind(unsigned index) {
    bind_once();
    return __atomic_load_n(&emm_run_targets[index], __ATOMIC_ACQUIRE);
}

} // namespace emm::run
