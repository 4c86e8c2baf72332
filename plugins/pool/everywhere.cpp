#include "everywhere.h"

#include "manager.h"

#include <chrono>
#include <map>
#include <thread>

namespace emm::pool {
namespace everywhere {
namespace {

struct Entry {
    Manager *manager;
    uint32_t visits;
};

struct Registry {
    std::mutex mutex;
    std::condition_variable left;
    std::map<uint64_t, Entry> entries;
    uint64_t next = 1;
    std::vector<std::pair<CUcontext, uint64_t>> unfinished;
    int portable = 0;
};

// Never destroyed: managers are not, when a process ends.
Registry &registry() {
    static Registry *const the_registry = new Registry;
    return *the_registry;
}

} // namespace

uint64_t enter(Manager &manager) {
    Registry &all = registry();
    const std::lock_guard lock(all.mutex);
    all.entries.emplace(all.next, Entry{&manager, 0});
    return all.next++;
}

void leave(uint64_t number) {
    Registry &all = registry();
    std::unique_lock lock(all.mutex);
    all.left.wait(lock, [&] { return all.entries.at(number).visits == 0; });
    all.entries.erase(number);
}

std::vector<uint64_t> numbers() {
    Registry &all = registry();
    const std::lock_guard lock(all.mutex);
    std::vector<uint64_t> found;
    for (const auto &[number, entry] : all.entries) {
        found.push_back(number);
    }
    return found;
}

Manager *begin_visit(uint64_t number) {
    Registry &all = registry();
    const std::lock_guard lock(all.mutex);
    const auto entry = all.entries.find(number);
    if (entry == all.entries.end()) {
        return nullptr;
    }
    entry->second.visits++;
    return entry->second.manager;
}

void end_visit(uint64_t number) {
    Registry &all = registry();
    const std::lock_guard lock(all.mutex);
    if (--all.entries.at(number).visits == 0) {
        all.left.notify_all();
    }
}

void count_portable(int more) {
    const std::lock_guard lock(registry().mutex);
    registry().portable += more;
}

bool has_portable() {
    const std::lock_guard lock(registry().mutex);
    return registry().portable > 0;
}

void leave_unfinished(CUcontext context, uint64_t context_id) {
    const std::lock_guard lock(registry().mutex);
    registry().unfinished.emplace_back(context, context_id);
}

bool all_finished(const Driver &driver) {
    std::vector<std::pair<CUcontext, uint64_t>> asked;
    {
        const std::lock_guard lock(registry().mutex);
        asked = registry().unfinished;
    }
    bool finished = true;
    for (const auto &[context, id] : asked) {
        finished = finished && !driver.is_alive(context, id);
    }
    return finished;
}

} // namespace everywhere

// --- what others ask of this manager -------------------------------------------------------------

// False: not possible now. The work of a context that has died is over.
bool Manager::mark_work(WorkMark &ret_mark) {
    WorkMark mark = {context_, context_id_, nullptr};
    if (context_lives()) {
        {
            const Lock lock(mutex_);
            if (announced_ != 0 || lost_ != CUDA_SUCCESS) {
                return false;
            }
            context_records_++;
        }
        const CUresult result = record_mark(mark);
        const Lock lock(mutex_);
        if (--context_records_ == 0) {
            unpinned_.notify_all();
        }
        note(result);
        if (result != CUDA_SUCCESS) {
            return false;
        }
    }
    ret_mark = mark;
    return true;
}

// A driver older than 12.5 has no such event, and is waited for instead.
CUresult Manager::record_mark(WorkMark &mark) {
    const Current current(driver_, context_, context_id_);
    CUresult result = current.result();
    if (result == CUDA_SUCCESS && !driver_.record_context_event) {
        return driver_.cuCtxSynchronize();
    }
    CUevent event = nullptr;
    if (result == CUDA_SUCCESS) {
        result = driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS) {
        result = driver_.record_context_event(context_, event);
    }
    if (result == CUDA_SUCCESS) {
        mark.event = event;
    } else if (event) {
        driver_.cuEventDestroy(event);
    }
    return result;
}

bool Manager::pass_everything() {
    if (!context_lives()) {
        return true;
    }
    Lock lock(mutex_);
    return announced_ == 0 && wait_for_all(lock);
}

// The manager ends, and after it nobody can mark what its context still works on.
void Manager::finish_portable_work() {
    if (has_portable_) {
        everywhere::count_portable(-1);
    }
    if (!everywhere::has_portable() || !context_lives()) {
        return;
    }
    const Current current(driver_, context_, context_id_);
    CUresult result = current.result();
    if (result == CUDA_SUCCESS) {
        const Relaxed relaxed(driver_);
        result = driver_.cuCtxSynchronize();
    }
    if (result != CUDA_SUCCESS) {
        everywhere::leave_unfinished(context_, context_id_);
    }
}

// --- what this manager asks of all, itself among them --------------------------------------------

bool Manager::has_passed(const WorkMark &mark) {
    if (!mark.event || !driver_.is_alive(mark.context, mark.context_id)) {
        return true; // an event goes with its context
    }
    const Relaxed relaxed(driver_);
    return driver_.cuEventQuery(mark.event) == CUDA_SUCCESS;
}

void Manager::drop(WorkMark &mark) {
    if (mark.event && driver_.is_alive(mark.context, mark.context_id)) {
        driver_.cuEventDestroy(mark.event);
    }
    mark.event = nullptr;
}

void Manager::drop(std::list<WorkMarks> &all) {
    for (WorkMarks &marks : all) {
        for (WorkMark &mark : marks.marks) {
            drop(mark);
        }
    }
}

// All contexts or none: where one cannot be marked now, a later call tries again.
bool Manager::seal_everywhere(Lock &lock) {
    constexpr size_t outstanding = 4;
    if (everywhere_.newest <= everywhere_.sealed || marks_.size() >= outstanding) {
        return false;
    }
    std::list<WorkMarks> made(1);
    made.front().tag = clock_.end_tag();
    lock.unlock();
    const bool marked = mark_everywhere(made.front().marks);
    if (!marked) {
        drop(made);
    }
    lock.lock();
    if (marked) {
        everywhere_.sealed = std::max(everywhere_.sealed, made.front().tag);
        everywhere_.open_bytes = everywhere_.open_frees = 0;
        marks_.splice(marks_.end(), made);
    }
    return marked;
}

// No lock is held.
bool Manager::mark_everywhere(std::vector<WorkMark> &marks) {
    bool marked = everywhere::all_finished(driver_);
    const std::vector<uint64_t> numbers = everywhere::numbers();
    marks.reserve(numbers.size()); // first: nothing is lost if there is no memory for it
    for (const uint64_t number : numbers) {
        if (Manager *other = marked ? everywhere::begin_visit(number) : nullptr) {
            WorkMark mark;
            marked = other->mark_work(mark);
            everywhere::end_visit(number);
            marks.push_back(mark);
        }
    }
    return marked;
}

void Manager::poll_everywhere(Lock &lock) {
    while (!marks_.empty()) {
        std::list<WorkMarks> first;
        first.splice(first.end(), marks_, marks_.begin());
        WorkMarks &marks = first.front();
        lock.unlock();
        while (!marks.marks.empty() && has_passed(marks.marks.back())) {
            drop(marks.marks.back());
            marks.marks.pop_back();
        }
        lock.lock();
        if (!marks.marks.empty()) {
            marks_.splice(marks_.begin(), first);
            return;
        }
        complete(everywhere_, marks.tag);
    }
}

// For a trim: a mark for what no mark covers yet, and a millisecond for it. Work that is done by
// now is seen so in that time.
void Manager::seal_what_is_portable(Lock &lock) {
    constexpr int rounds = 50;
    constexpr auto pause = std::chrono::microseconds(20);
    poll_everywhere(lock);
    seal_everywhere(lock);
    poll_everywhere(lock);
    for (int i = 0; i < rounds && !marks_.empty() && lost_ == CUDA_SUCCESS; i++) {
        lock.unlock();
        std::this_thread::sleep_for(pause);
        lock.lock();
        poll_everywhere(lock);
    }
}

bool Manager::wait_everywhere(Lock &lock) {
    const uint64_t tag = clock_.end_tag();
    lock.unlock();
    bool passed = everywhere::all_finished(driver_);
    for (const uint64_t number : everywhere::numbers()) {
        if (Manager *other = passed ? everywhere::begin_visit(number) : nullptr) {
            passed = other->pass_everything();
            everywhere::end_visit(number);
        }
    }
    lock.lock();
    if (passed) {
        complete(everywhere_, tag);
    }
    return passed;
}

} // namespace emm::pool
