#pragma once

#include "block.h"
#include "mailbox.h"

#include <atomic>
#include <random>
#include <vector>

// What the threads share.
struct Traffic {
    const Cuda cuda;
    std::vector<Gpu> gpus;
    Mailbox mailbox;
    std::atomic<bool> stop{false};
    std::atomic<unsigned> last_pattern{0};
    std::atomic<uint64_t> steps{0};
};

// One thread of random traffic, on streams of its own in every context.
class Worker {
public:
    Worker(Traffic &traffic, unsigned number);

    // Random steps until the traffic stops; then gives everything back.
    void run();

private:
    struct Streams {
        CUstream main = nullptr, side = nullptr;
    };

    void step();
    void allocate();
    void free_in_order();
    void free_unordered();
    void free_after_side_use();
    void send();
    void receive();
    void allocate_pinned();
    void section();
    void replace_stream();
    void housekeeping();
    void finish();

    void use(size_t gpu); // makes it current
    Block take_random();
    size_t random(size_t below) { return random_() % below; }
    size_t random_size();
    void free(const Block &block, emm_stream stream);

    Traffic &traffic_;
    const Cuda &cuda_;
    const unsigned number_;
    std::mt19937_64 random_;
    std::vector<Streams> streams_; // by context
    std::vector<Block> live_;
};
