#include "cross_context.h"

#include "registry.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace emm::pool {

void CrossContext::begin() {
    if (!has_portable_) {
        has_portable_ = true;
        registry::count_portable(1);
    }
}

void CrossContext::end() {
    if (has_portable_) {
        registry::count_portable(-1);
    }
    // If an older manager of the context exists, it also marked the context's work, and continues
    // to.
    if (!registry::has_portable() || registry::has_older_sibling(order_.number()) ||
        !context_.lives()) {
        return;
    }
    if (order_.await_work() != CUDA_SUCCESS && context_.serves()) {
        registry::leave_unfinished(context_.handle, context_.id);
    }
}

void CrossContext::do_maintenance(Lock &lock) {
    StreamPool &pool = order_.cross_context();
    if (is_worth_a_mark(pool.open_frees_, pool.open_bytes_)) {
        pool.open_frees_ = 0;
        pool.open_bytes_ = 0;
        query(lock);
        mark(lock);
    }
}

void CrossContext::take_back() const {
    const bool lives = context_.lives();
    for (uint64_t number = 0; (number = registry::next(number)) != 0;) {
        const registry::Visit other{number};
        WorkMark mark;
        while (other && other->take_mark_of(order_.number(), mark)) {
            if (mark.event && lives) {
                events_.destroy(mark.event);
            }
        }
    }
}

// --- questions to all managers, this one among them ----------------------------------------------

bool CrossContext::is_own(const WorkMark &mark) const {
    return mark.context == context_.handle && mark.context_id == context_.id;
}

// Another thread may be ending the other context, but not while the context's manager is visited. A
// manager that has gone has waited for the work, or an older manager of its context has a mark. The
// event ends with the context.
bool CrossContext::is_over(const WorkMark &mark) const {
    if (!mark.event) {
        return true;
    }
    if (is_own(mark)) {
        return !context_.lives() || events_.query(mark.event) == CUDA_SUCCESS;
    }
    const registry::Visit other(mark.manager);
    return other ? other->is_over(mark.event)
                 : !registry::is_unfinished(mark.context, mark.context_id) ||
                       !context_.driver.is_alive(mark.context, mark.context_id);
}

void CrossContext::drop(WorkMark &mark) const {
    if (mark.event && is_own(mark)) {
        if (context_.lives()) {
            events_.destroy(mark.event);
        }
    } else if (mark.event) {
        const registry::Visit other(mark.manager);
        if (other && other->lives()) {
            events_.destroy(mark.event);
        }
    }
    mark.event = nullptr;
}

void CrossContext::drop(std::list<Marks> &all) const {
    for (Marks &marks : all) {
        for (WorkMark &mark : marks.marks) {
            drop(mark);
        }
    }
}

std::list<Marks> CrossContext::forget() {
    std::list<Marks> marks;
    marks.swap(order_.marks_);
    return marks;
}

bool CrossContext::mark(Lock &lock) {
    StreamPool &pool = order_.cross_context();
    if (pool.newest <= pool.recorded || order_.marks_.size() >= most_marks) {
        return false;
    }
    std::list<Marks> made(1);
    made.front().tag = order_.clock_.end_tag();
    lock.unlock();
    const bool marked = mark_everywhere(made.front().marks);
    if (!marked) {
        drop(made);
    }
    lock.lock();
    if (marked) {
        pool.recorded = std::max(pool.recorded, made.front().tag);
        pool.open_bytes_ = pool.open_frees_ = 0;
        order_.marks_.splice(order_.marks_.end(), made);
    }
    return marked;
}

// No lock is held.
bool CrossContext::mark_everywhere(std::vector<WorkMark> &marks) const {
    bool marked = registry::all_finished(context_.driver, false);
    for (uint64_t number = 0; marked && (number = registry::next(number)) != 0;) {
        if (const registry::Visit other{number}) {
            try {
                marks.emplace_back();
            } catch (const std::bad_alloc &) {
                return false;
            }
            marked = other->mark_work(marks.back());
        }
    }
    return marked;
}

void CrossContext::query(Lock &lock) {
    while (!order_.marks_.empty()) {
        std::list<Marks> first;
        first.splice(first.end(), order_.marks_, order_.marks_.begin());
        Marks &marks = first.front();
        lock.unlock();
        while (!marks.marks.empty() && is_over(marks.marks.back())) {
            drop(marks.marks.back());
            marks.marks.pop_back();
        }
        lock.lock();
        if (!marks.marks.empty()) {
            order_.marks_.splice(order_.marks_.begin(), first);
            return;
        }
        order_.complete(order_.cross_context(), marks.tag);
    }
}

// For a trim: marks all work that no mark covers yet, and waits a millisecond, so that finished
// work is seen. If it may wait, also waits for managers that could not at their end.
void CrossContext::mark_what_is_left(Lock &lock, bool may_wait) {
    if (may_wait && order_.cross_context().newest > order_.cross_context().completed) {
        const Unlocked unlocked(lock);
        registry::all_finished(context_.driver, true);
    }
    query(lock);
    mark(lock);
    query(lock);
    for (int i = 0; i < trim_rounds && !order_.marks_.empty() && context_.serves(); i++) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::nanoseconds(trim_pause_ns));
        lock.lock();
        query(lock);
    }
}

bool CrossContext::wait(Lock &lock) {
    const uint64_t tag = order_.clock_.end_tag();
    lock.unlock();
    bool passed = registry::all_finished(context_.driver, true);
    for (uint64_t number = 0; passed && (number = registry::next(number)) != 0;) {
        if (const registry::Visit other{number}) {
            passed = other->wait_for_all_work();
        }
    }
    lock.lock();
    if (passed) {
        order_.complete(order_.cross_context(), tag);
    }
    return passed;
}

} // namespace emm::pool
