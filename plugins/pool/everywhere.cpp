#include "everywhere.h"

#include "manager.h"

#include <map>

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

} // namespace everywhere

// --- what others ask of this manager -------------------------------------------------------------

uint64_t Manager::mark_work() {
    Lock lock(mutex_);
    Watch *watch = seal_context(lock);
    if (!watch) {
        return 0;
    }
    const uint64_t mark = watch->tag;
    if (driver_.record_context_event) {
        unordered_.watches.push_back(*watch);
    } else {
        finish_context(*watch);
    }
    return mark;
}

bool Manager::has_passed(uint64_t mark) {
    Lock lock(mutex_);
    if (unordered_.completed < mark) {
        poll(lock, unordered_);
    }
    return unordered_.completed >= mark;
}

bool Manager::pass_everything() {
    Lock lock(mutex_);
    return announced_ == 0 && wait_for_all(lock);
}

// --- what this manager asks of all, itself among them --------------------------------------------

// All contexts or none: where one cannot be marked now, a later call tries again.
bool Manager::seal_everywhere(Lock &lock) {
    constexpr size_t outstanding = 4;
    if (everywhere_.newest <= everywhere_.sealed || marks_.size() >= outstanding) {
        return false;
    }
    std::list<WorkMarks> made(1);
    WorkMarks &marks = made.front();
    marks.tag = heap_.clock++;
    bool marked = true;
    lock.unlock();
    const std::vector<uint64_t> numbers = everywhere::numbers();
    marks.marks.reserve(numbers.size());
    for (const uint64_t number : numbers) {
        if (Manager *other = marked ? everywhere::begin_visit(number) : nullptr) {
            const uint64_t mark = other->mark_work();
            everywhere::end_visit(number);
            marks.marks.emplace_back(number, mark);
            marked = mark != 0;
        }
    }
    lock.lock();
    if (marked) {
        everywhere_.sealed = std::max(everywhere_.sealed, marks.tag);
        everywhere_.open_bytes = everywhere_.open_frees = 0;
        marks_.splice(marks_.end(), made);
    }
    return marked;
}

void Manager::poll_everywhere(Lock &lock) {
    while (!marks_.empty()) {
        std::list<WorkMarks> first;
        first.splice(first.end(), marks_, marks_.begin());
        WorkMarks &marks = first.front();
        lock.unlock();
        bool passed = true;
        while (passed && !marks.marks.empty()) {
            const auto [number, mark] = marks.marks.back();
            Manager *other = everywhere::begin_visit(number);
            if (other) {
                passed = other->has_passed(mark);
                everywhere::end_visit(number);
            }
            if (passed) {
                marks.marks.pop_back();
            }
        }
        lock.lock();
        if (!passed) {
            marks_.splice(marks_.begin(), first);
            return;
        }
        complete(everywhere_, marks.tag);
    }
}

bool Manager::wait_everywhere(Lock &lock) {
    const uint64_t tag = heap_.clock++;
    bool passed = true;
    lock.unlock();
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
