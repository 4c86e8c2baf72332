#include "registry.h"

#include "events.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

namespace emm::pool::registry {
namespace {

struct Entry {
    StreamOrder *order;
    CUcontext context;
    uint64_t context_id;
    uint32_t visits = 0;
};

struct Registry {
    mutable std::mutex mutex;
    std::condition_variable left;
    std::map<uint64_t, Entry> entries;
    uint64_t next = 1;
    std::vector<std::pair<CUcontext, uint64_t>> unfinished;
    int portable = 0;
};

// Never destroyed: managers are not, when a process ends.
Registry &the_registry() {
    static Registry *const made = new Registry;
    return *made;
}

StreamOrder *begin_visit(uint64_t number) {
    Registry &all = the_registry();
    const std::lock_guard lock(all.mutex);
    const auto entry = all.entries.find(number);
    if (entry == all.entries.end()) {
        return nullptr;
    }
    entry->second.visits++;
    return entry->second.order;
}

void end_visit(uint64_t number) {
    Registry &all = the_registry();
    const std::lock_guard lock(all.mutex);
    if (--all.entries.at(number).visits == 0) {
        all.left.notify_all();
    }
}

} // namespace

void enter(StreamOrder &order, CUcontext context, uint64_t context_id, uint64_t &ret_number) {
    Registry &all = the_registry();
    const std::lock_guard lock(all.mutex);
    all.unfinished.reserve(all.unfinished.size() + all.entries.size() + 1); // so that no end fails
    all.entries.emplace(all.next, Entry{&order, context, context_id});
    ret_number = all.next++;
}

void leave(uint64_t number) {
    Registry &all = the_registry();
    std::unique_lock lock(all.mutex);
    all.left.wait(lock, [&] { return all.entries.at(number).visits == 0; });
    all.entries.erase(number);
}

uint64_t next(uint64_t number) {
    const Registry &all = the_registry();
    const std::lock_guard lock(all.mutex);
    const auto above = all.entries.upper_bound(number);
    return above == all.entries.end() ? 0 : above->first;
}

bool has_older_sibling(uint64_t number) {
    const Registry &all = the_registry();
    const std::lock_guard lock(all.mutex);
    const auto own = all.entries.find(number);
    return std::any_of(all.entries.begin(), own, [&](const auto &older) {
        return older.second.context == own->second.context &&
               older.second.context_id == own->second.context_id;
    });
}

void count_portable(int more) {
    const std::lock_guard lock(the_registry().mutex);
    the_registry().portable += more;
}

bool has_portable() {
    const std::lock_guard lock(the_registry().mutex);
    return the_registry().portable > 0;
}

void leave_unfinished(CUcontext context, uint64_t context_id) {
    const std::lock_guard lock(the_registry().mutex);
    the_registry().unfinished.emplace_back(context, context_id);
}

bool is_unfinished(CUcontext context, uint64_t context_id) {
    const std::lock_guard lock(the_registry().mutex);
    const auto &all = the_registry().unfinished;
    return std::find(all.begin(), all.end(), std::pair(context, context_id)) != all.end();
}

bool all_finished(const Driver &driver, bool waits) {
    auto &unfinished = the_registry().unfinished;
    std::unique_lock lock(the_registry().mutex);
    while (!unfinished.empty()) {
        const std::pair<CUcontext, uint64_t> asked = unfinished.back();
        lock.unlock();
        const auto has_ended = [&] {
            const CUresult result = await_work_of(driver, asked.first, asked.second);
            return result == CUDA_SUCCESS || is_sticky(result);
        };
        if (driver.is_alive(asked.first, asked.second) && !(waits && has_ended())) {
            return false;
        }
        lock.lock();
        std::erase(unfinished, asked); // another thread may have done so
    }
    return true;
}

Visit::Visit(uint64_t number) : number_(number), order_(begin_visit(number)) {}

Visit::~Visit() {
    if (order_) {
        end_visit(number_);
    }
}

} // namespace emm::pool::registry
