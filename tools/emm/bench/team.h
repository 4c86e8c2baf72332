#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace emm::tool {

// One measurement of one candidate.
struct Measurement {
    std::string name; // of the case
    uint32_t threads = 1;
    size_t size = 0;
};

// The work that one thread repeats: a pair is one allocation and one free.
class Work {
public:
    virtual ~Work() = default;
    virtual void run(uint64_t pairs) = 0;
    // The number of pairs that each run() gets; 0: any.
    virtual uint64_t batch() const { return 0; }
    // Called before and after each `run`, outside of the measured time.
    virtual void begin() {}
    virtual void end() {}
    // Gives back the blocks that it still holds, after all threads have stopped.
    virtual void clean_up() {}
};

struct Rate {
    double ns_per_pair = 0;  // the median of short stretches, which hides interruptions
    double mpairs_per_s = 0; // by all threads together, interruptions included
    uint64_t pairs = 0;      // by all threads together
};

// Threads that each make their work and then run it in rounds, all at once, each on a processor of
// its own if the machine has enough.
class Team {
public:
    // Makes the work of one thread, on that thread. `stopping`, which lives as long as the work, is
    // true between the end of a round and the beginning of the next.
    using Maker =
        std::function<std::unique_ptr<Work>(uint32_t thread, const std::atomic<bool> &stopping)>;

    // Throws an exception of a maker, or Failure if a thread cannot be started.
    Team(uint32_t threads, const Maker &maker);
    ~Team();
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;

    // Throws an exception of a thread's work.
    Rate round(double seconds);

private:
    // A round must be long enough for a plugin that frees in batches.
    static constexpr uint64_t smallest_chunk = 32;

    struct Member {
        std::thread thread;
        std::unique_ptr<Work> work;
        uint64_t chunk = smallest_chunk; // pairs between looks at the clock
        double ns_per_pair = 0;
        double pairs_per_ns = 0;
        uint64_t pairs = 0;
    };
    enum class Order { make, run, clean_up, end };

    void give(Order order);
    void end();
    void live(uint32_t number, const Maker &maker);
    void obey(Order order, Member &member, uint32_t number, const Maker &maker);
    void run(Member &member);
    void await_all(std::unique_lock<std::mutex> &lock);

    std::vector<Member> members_;
    uint32_t started_ = 0;
    std::mutex mutex_;
    std::condition_variable ordered_, done_;
    Order order_ = Order::make;
    uint64_t orders_ = 0; // given so far
    size_t busy_ = 0;
    std::atomic<bool> stopping_{true};
    std::exception_ptr failure_;
};

} // namespace emm::tool
