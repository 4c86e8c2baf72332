#pragma once

#include "../parts/sized.h"
#include "pattern.h"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

// The settings of the command line, as NAME=NUMBER.
struct Settings {
    size_t steps = 20000; // of all threads in a round; 0: as many as `seconds` have room for
    size_t seconds = 0;
    size_t threads = 4;
    size_t lives = 1;     // threads that do one thread's steps in turn
    size_t contexts = 1;  // each on the next device, if there is one
    size_t live = 48;     // the most blocks of a thread
    size_t read_back = 0; // 1: threads wait now and then, and check a block's content
    size_t tight = 0;     // 1: the plugin has a limit, and requests may fail for want of memory
    size_t full = 0;      // the MiB that the first device has left; requests may fail there alone
    size_t captures = 2;  // 0: none, 1: announced ones, 2: all
    size_t rounds = 1;    // each with managers of its own
    size_t seed = 1;      // of the first round
    bool alone() const { return threads == 1; }
};

// A block on its way through its uses.
struct Block {
    size_t context = 0; // its number, see Traffic
    emm_deviceptr ptr = 0;
    size_t size = 0;
    CUstream stream = nullptr;   // all its uses are ordered before later work there
    unsigned pattern = 0;        // left by the last of them
    bool used_elsewhere = false; // as the plugin has been told
};

// A block that its thread leaves to another one, which frees it.
struct HandOver {
    enum class Free {
        on_its_stream, // the stream is common to all threads
        behind_event,  // on any stream that waits for the event
        unordered,
    };
    Block block;
    Free how = Free::on_its_stream;
    CUevent event = nullptr;
};

// One context: as emm and as CUDA know it.
struct Context {
    Context(const Cuda &cuda, const Gpu &its_gpu, bool its_full);
    Context(const Context &) = delete;
    // Called after all its blocks are freed and all its work is done: no memory of it may be left.
    void close(const Cuda &cuda);

    const Gpu gpu;
    const bool is_full; // whether its device is, see Settings
    std::unique_ptr<Pattern> pattern;
    std::vector<CUstream> common; // streams that all threads use, registered
};

// The state that the threads share.
class Traffic {
public:
    Traffic(const Settings &settings, size_t seed);
    ~Traffic(); // ends the contexts, with all that a plugin has left there

    void run(); // throws at the first fault

    const Settings settings;
    const size_t seed;
    const Cuda cuda;
    std::vector<std::unique_ptr<Context>> contexts;
    std::atomic<unsigned> last_pattern{0};
    std::atomic<bool> stop{false};
    // Held by calls that may record a context event, which would invalidate an unannounced capture:
    // calls without a stream, among them allocations of pinned memory; frees of memory that was
    // used elsewhere; and trims.
    std::shared_mutex unordered_calls;

    void use(const Context &context) const; // makes it current
    void put(const HandOver &handed);
    std::optional<HandOver> take();
    bool may_fail(const Context &context) const { return settings.tight || context.is_full; }
    std::atomic<size_t> failed{0}; // requests that failed, as they may

private:
    void run_lives(size_t number);
    void free_handed_over();
    void fill_first_device();
    void await_filling() const;
    void empty_first_device();

    std::mutex mutex_;
    std::deque<HandOver> handed_over_;
    std::string failure_;          // the first; others are its consequences
    std::atomic<size_t> ready_{0}; // threads that have their streams
    std::atomic<bool> filled_{false};
    std::vector<emm_deviceptr> filling_;
};
