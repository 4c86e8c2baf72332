#include "moves.h"

namespace emm::pool {

// Every watching request sees this, except those of the same thread.
void Moves::end_one() {
    under_way_--;
    for (Watch *watch = watches_.first(); watch; watch = watches_.next(*watch)) {
        watch->saw_one_ = watch->saw_one_ || !pthread_equal(watch->thread_, pthread_self());
    }
    ended_.notify_all();
}

bool Moves::await(Lock &lock, const Watch &watch) {
    ended_.wait(lock, [&] { return watch.saw_one_ || under_way_ == 0; });
    return watch.saw_one_;
}

} // namespace emm::pool
