// Behaviour: the memory that a trim leaves.
#include "simulation.h"

#include <random>

using namespace pool_test;

namespace {

// One thread's work of every kind on one simulation, from a seed.
class Mixture {
public:
    Mixture(Simulation &sim, uint32_t seed) : sim_(sim), random_(seed) {
        for (int i = 0; i < 4; i++) {
            streams_.push_back(sim.stream());
        }
        streams_.insert(streams_.end(), {sim.stream(false), legacy, per_thread});
    }

    void run(int steps) {
        for (int i = 0; i < steps; i++) {
            step();
        }
        free_all();
    }

private:
    struct Block {
        CUdeviceptr ptr;
        CUstream stream;
        bool is_used_elsewhere = false;
    };
    struct Host {
        void *host;
        uint32_t flags;
    };

    CUstream any_stream() { return streams_[random_() % streams_.size()]; }
    CUstream any_registered() { return streams_[random_() % 4]; }

    size_t any_size() {
        const size_t most[] = {KiB, 32 * KiB, MiB, 12 * MiB};
        return 1 + random_() % most[random_() % 4];
    }

    void allocate(CUstream stream) {
        blocks_.push_back({sim_.alloc(any_size(), stream), stream});
        sim_.touch(blocks_.back().ptr, 1, stream == unordered ? legacy : stream);
    }

    // Frees on the block's own stream, on another one that comes after it, or unordered.
    void free(Block block) {
        const CUstream other = any_stream();
        switch (block.stream == unordered ? 0 : random_() % 4) {
        case 0:
            REQUIRE(sim_.free(block.ptr, unordered) == EMM_OK);
            break;
        case 1:
            sim_.order(block.stream, other);
            REQUIRE(sim_.free(block.ptr, other) == EMM_OK);
            break;
        default:
            REQUIRE(sim_.free(block.ptr, block.stream) == EMM_OK);
        }
    }

    template <class Item> Item take(std::vector<Item> &items) {
        std::swap(items[random_() % items.size()], items.back());
        const Item taken = items.back();
        items.pop_back();
        return taken;
    }

    void use_elsewhere() {
        Block &block = blocks_[random_() % blocks_.size()];
        const CUstream other = any_registered();
        if (block.stream == unordered || block.is_used_elsewhere) {
            return;
        }
        block.is_used_elsewhere = true;
        sim_.order(block.stream, other);
        sim_.touch(block.ptr, 1, other);
        REQUIRE(pool().record_use(sim_.manager, block.ptr, 0, other) == EMM_OK);
    }

    void capture() {
        const CUstream stream = any_registered();
        CUgraph graph = nullptr;
        CUgraphExec run = nullptr;
        sim_.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
        REQUIRE(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
        const CUdeviceptr kept = sim_.alloc(any_size(), stream),
                          freed = sim_.alloc(any_size(), stream);
        sim_.touch(freed, 1, stream);
        sim_.touch(kept, 1, stream);
        REQUIRE(sim_.free(freed, stream) == EMM_OK);
        REQUIRE(cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
        sim_.notice(stream, EMM_STREAM_CAPTURE_ENDS);
        REQUIRE(cuda().cuGraphInstantiate(&run, graph, 0) == CUDA_SUCCESS);
        REQUIRE(cuda().cuGraphLaunch(run, stream) == CUDA_SUCCESS);
        REQUIRE(cuda().cuGraphDestroy(graph) == CUDA_SUCCESS);
        REQUIRE(cuda().cuGraphExecDestroy(run) == CUDA_SUCCESS);
        blocks_.push_back({kept, stream});
    }

    void pin() {
        const uint32_t flags[] = {0, EMM_HOST_MAPPED, EMM_HOST_PORTABLE};
        Host made = {nullptr, flags[random_() % 3]};
        emm_deviceptr device = 0;
        REQUIRE(pool().memhostalloc(sim_.manager, any_size(), made.flags, &made.host, &device) ==
                EMM_OK);
        hosts_.push_back(made);
    }

    void unpin(const Host &host) {
        const CUstream stream = random_() % 4 ? any_stream() : unordered;
        REQUIRE(pool().memhostfree(sim_.manager, host.host, 0, host.flags, stream) == EMM_OK);
    }

    void step() {
        const unsigned what = random_() % 64;
        if (what == 0) {
            capture();
        } else if (what < 6) {
            pin();
        } else if (what < 11 && !hosts_.empty()) {
            unpin(take(hosts_));
        } else if (what < 15 && !blocks_.empty()) {
            use_elsewhere();
        } else if (what < 40 || blocks_.empty()) {
            allocate(random_() % 8 ? any_stream() : unordered);
        } else {
            free(take(blocks_));
        }
    }

    void free_all() {
        while (!blocks_.empty()) {
            free(take(blocks_));
        }
        while (!hosts_.empty()) {
            unpin(take(hosts_));
        }
    }

    Simulation &sim_;
    std::mt19937 random_;
    std::vector<CUstream> streams_;
    std::vector<Block> blocks_;
    std::vector<Host> hosts_;
};

} // namespace

TEST_CASE("a trim of a context that has nothing to do returns all that is not in use") {
    for (const char *options : {"growth=segment", "growth=vmm", "release_threshold=64MiB",
                                "growth=vmm,release_threshold=64MiB", "initial=64MiB",
                                "growth=vmm,initial=64MiB", "ipc=dedicated"}) {
        for (uint32_t seed = 0; seed < 24; seed++) {
            INFO(options << ", seed " << seed);
            Simulation sim(options);
            Mixture mixture(sim, seed);
            mixture.run(400);
            cuda().cuCtxPushCurrent(sim.context);
            REQUIRE(cuda().cuCtxSynchronize() == CUDA_SUCCESS);
            sim.trim();
            const emm_stats stats = sim.stats();
            CUcontext popped = nullptr;
            cuda().cuCtxPopCurrent(&popped);
            CHECK(stats.live_bytes == 0);
            CHECK(stats.reserved_bytes == 0);
            CHECK(stats.host_live_bytes == 0);
            CHECK(stats.host_reserved_bytes == 0);
            CHECK(sim.held() == 0);
            INFO(cuda().last_race());
            CHECK(sim.races() == 0);
        }
    }
}

// A driver may take a moment to see that an event is complete that was recorded behind no work.
TEST_CASE("a trim returns what a stream freed before it was synchronized") {
    for (const char *growth : {"growth=segment", "growth=vmm"}) {
        Simulation sim(growth);
        const CUstream registered = sim.stream();
        for (int i = 0; i < 20; i++) {
            const CUstream stream = i % 2 ? registered : legacy;
            const CUdeviceptr ptr = sim.alloc(64 * MiB, stream);
            sim.touch(ptr, 64 * MiB, stream);
            REQUIRE(sim.free(ptr, stream) == EMM_OK);
            synchronize(sim);
            sim.trim();
            CHECK(sim.held() == 0);
        }
    }
}
