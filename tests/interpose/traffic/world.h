// Shared by the threads of the traffic: contexts that live for a round, and blocks on their way
// from one thread to another.
#pragma once

#include "../../parts/ends.h"
#include "../driver.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

// The settings of the command line, as NAME=NUMBER.
struct Settings {
    size_t steps = 20000; // of all threads in a round; 0: as many as `seconds` have room for
    size_t seconds = 0;   // of a round
    size_t threads = 6;
    size_t rounds = 2;    // each with contexts of its own
    size_t live = 40;     // the most blocks of a thread in a context
    size_t read_back = 1; // 1: threads wait now and then, and check the content of a block
    size_t captures = 2;  // 0: none, 1: of graphs that leave no memory to the thread, 2: all
    size_t scarce = 0;    // 1: memory may run out, and the thread goes on without
    size_t calls = 64;    // how many each thread shows if the context is lost
    size_t seed = 1;      // of the first round

    // 0: done without, to find out which of them a failure needs.
    size_t managed = 1, pools = 1; // memory of cuMemAllocManaged, of pools of the program's own
    size_t abroad = 1;             // memory of another device's default pool
    size_t foreign = 1;            // frees on streams of another context
    size_t wander = 1;             // frees while another context is current
    size_t handed = 1;             // blocks that go on to another thread
    size_t pinned = 1;             // host memory, pinned and registered
    size_t replaced = 1;           // streams that end while blocks are used there
    size_t lives = 1;              // contexts that come and go
    size_t per_thread = 1;         // the threads' own streams
    size_t updates = 1;            // executable graphs that take over other graphs
    size_t meetings = 1;           // host functions that wait for another thread's call
    size_t returned = 1;           // more memory taken and freed than there is
};

// The driver and its devices. The simulated driver with three devices has all that the traffic
// knows, and checks more.
struct Machine {
    int devices = 1; // three at most
    bool is_simulated = false;

    bool has_common_context() const { return devices == 3; }
};
Machine find_machine();                                            // after cuInit
CUresult find_simulator_entry(const char *name, void **ret_entry); // NULL: another driver

// A context that lives for a round.
struct Place {
    CUdevice device = 0;
    bool primary = false;
    CUcontext context = nullptr;
};

constexpr unsigned place_count = 3;

// The place whose device's pool memory of Kind::abroad is of.
constexpr unsigned abroad_of(unsigned place) {
    return place == 2 ? 0 : 2;
}

// How a block was allocated.
enum class Kind { plain, pitched, managed, ordered, pooled, abroad };

inline bool waits_at_free(Kind kind) {
    return kind == Kind::plain || kind == Kind::pitched || kind == Kind::managed;
}

struct Block {
    unsigned place = 0;
    Kind kind = Kind::plain;
    CUdeviceptr ptr = 0;
    size_t size = 0;
    CUstream stream = nullptr; // all its uses are ordered before later work there
    unsigned pattern = 0;      // left by the last of them
    uint64_t id = 0;           // as the driver has told; 0: not asked
};

// A block that its thread leaves to another one, behind the event.
struct HandOver {
    Block block;
    CUevent event = nullptr;
};

class World {
public:
    World(const Settings &settings, const Machine &machine, size_t seed);
    World(const World &) = delete;
    void run(); // throws at the first fault

    const Settings settings;
    const Machine machine;
    const size_t seed;
    Place places[place_count];
    std::atomic<bool> stop{false};
    std::atomic<bool> is_meeting{false}; // a host function waits for a thread
    std::atomic<CUdeviceptr> shown{0}; // the latest block of some thread, which may be freed by now

    unsigned next_pattern();
    void put(const HandOver &handed);
    std::optional<HandOver> take();

private:
    void run_thread(size_t number);
    void free_handed_over();
    void end_contexts();

    std::atomic<unsigned> last_pattern_{0};
    std::mutex mutex_;
    std::deque<HandOver> handed_over_;
    std::string failure_; // the first; others are its consequences
};
