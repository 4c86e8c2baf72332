#include "bench/team.h"

#include "clock.h"
#include "statistics.h"
#include "threads.h"

#include <chrono>
#include <pthread.h>
#include <sched.h>

namespace emm::tool {
namespace {

constexpr double chunk_seconds = 50e-6;
constexpr uint64_t largest_chunk = uint64_t(1) << 20;

std::vector<int> allowed_processors() {
    std::vector<int> allowed;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int processor = 0; processor < CPU_SETSIZE; processor++) {
            if (CPU_ISSET(processor, &set)) {
                allowed.push_back(processor);
            }
        }
    }
    return allowed;
}

// More threads than processors are left to the scheduler.
void stay_on_a_processor(uint32_t number, size_t threads) {
    static const std::vector<int> allowed = allowed_processors();
    if (threads <= allowed.size()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(static_cast<size_t>(allowed[number]), &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
}

} // namespace

Team::Team(uint32_t threads, const Maker &maker) : members_(threads) {
    try {
        for (; started_ < threads; started_++) {
            members_[started_].thread =
                start_thread(started_, threads, [this, i = started_, maker] { live(i, maker); });
        }
        give(Order::make);
        if (failure_) {
            std::rethrow_exception(failure_);
        }
    } catch (...) {
        end();
        throw;
    }
}

Team::~Team() {
    end();
}

void Team::end() {
    give(Order::clean_up);
    give(Order::end);
    for (uint32_t i = 0; i < started_; i++) {
        members_[i].thread.join();
    }
}

Rate Team::round(double seconds) {
    std::unique_lock lock(mutex_);
    stopping_ = false;
    order_ = Order::run;
    orders_++;
    busy_ = members_.size();
    ordered_.notify_all();
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    stopping_ = true;
    lock.lock();
    await_all(lock);
    if (failure_) {
        std::rethrow_exception(failure_);
    }
    Rate rate;
    for (const Member &member : members_) {
        rate.ns_per_pair += member.ns_per_pair / static_cast<double>(members_.size());
        rate.mpairs_per_s += member.pairs_per_ns * 1000;
        rate.pairs += member.pairs;
    }
    return rate;
}

void Team::give(Order order) {
    std::unique_lock lock(mutex_);
    order_ = order;
    orders_++;
    busy_ = started_;
    ordered_.notify_all();
    await_all(lock);
}

void Team::await_all(std::unique_lock<std::mutex> &lock) {
    done_.wait(lock, [this] { return busy_ == 0; });
}

void Team::live(uint32_t number, const Maker &maker) {
    stay_on_a_processor(number, members_.size());
    Member &member = members_[number];
    uint64_t obeyed = 0;
    for (bool ended = false; !ended;) {
        std::unique_lock lock(mutex_);
        ordered_.wait(lock, [&] { return orders_ > obeyed; });
        obeyed = orders_;
        const Order order = order_;
        lock.unlock();
        std::exception_ptr failure;
        try {
            obey(order, member, number, maker);
        } catch (...) {
            failure = std::current_exception();
        }
        ended = order == Order::end;
        lock.lock();
        failure_ = failure_ ? failure_ : failure;
        if (--busy_ == 0) {
            done_.notify_all();
        }
    }
}

void Team::obey(Order order, Member &member, uint32_t number, const Maker &maker) {
    switch (order) {
    case Order::make:
        member.work = maker(number, stopping_);
        break;
    case Order::run:
        run(member);
        break;
    case Order::clean_up:
        if (member.work) {
            member.work->clean_up();
        }
        break;
    case Order::end:
        member.work.reset();
        break;
    }
}

// Chunks grow until one takes so long that the clock does not matter.
void Team::run(Member &member) {
    Work &work = *member.work;
    std::vector<double> ns_per_pair;
    uint64_t pairs = 0;
    double seconds = 0;
    do {
        const uint64_t chunk = work.batch() != 0 ? work.batch() : member.chunk;
        work.begin();
        const double before = seconds_now();
        work.run(chunk);
        const double taken = seconds_now() - before;
        work.end();
        pairs += chunk;
        seconds += taken;
        ns_per_pair.push_back(taken * 1e9 / static_cast<double>(chunk));
        if (taken < chunk_seconds && chunk < largest_chunk) {
            member.chunk = 2 * chunk;
        }
    } while (!stopping_.load(std::memory_order_relaxed));
    member.pairs = pairs;
    member.pairs_per_ns = static_cast<double>(pairs) / (seconds * 1e9);
    member.ns_per_pair = median(std::move(ns_per_pair));
}

} // namespace emm::tool
