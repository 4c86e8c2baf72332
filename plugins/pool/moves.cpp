// Memory on its way to the driver or to other addresses is in no index, and neither is there room
// for it below max. A request that would fail meanwhile waits for the end of that, and tries again.
#include "manager.h"

namespace emm::pool {

Manager::Hope::Hope(Manager &of) : manager(of), thread(pthread_self()) {
    manager.hopes_.push_back(*this);
}

Manager::Hope::~Hope() {
    manager.hopes_.remove(*this);
}

void Manager::begin_move() {
    moves_++;
}

// Every request that hopes hears of it, but not of its own thread's moves.
void Manager::end_move() {
    moves_--;
    for (Hope *hope = hopes_.first(); hope; hope = hopes_.next(*hope)) {
        hope->heard = hope->heard || !pthread_equal(hope->thread, pthread_self());
    }
    moved_.notify_all();
}

// Whether a move of another thread has ended since, if only now.
bool Manager::await_moves(Lock &lock, const Hope &hope) {
    moved_.wait(lock, [&] { return hope.heard || moves_ == 0; });
    return hope.heard;
}

// If all that is not in use could be had as one.
uint64_t Manager::idle_at_most() const {
    const uint64_t used = counts_.taken() + waiting_;
    const uint64_t limit = options_.max == UINT64_MAX ? reserved_ : options_.max;
    return limit > used ? limit - used : 0;
}

} // namespace emm::pool
