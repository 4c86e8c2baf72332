// Behaviour: random traffic is never handed memory early.
#include "simulation.h"

#include <atomic>
#include <map>
#include <random>
#include <thread>

using namespace pool_test;

namespace {

struct Allocation {
    CUdeviceptr ptr;
    size_t size;
    CUstream stream;
};

// Random traffic over streams of every kind that come and go; every allocation is written to.
class Traffic {
public:
    Traffic(Simulation &sim, uint32_t seed) : sim_(sim), random_(seed) {
        for (int i = 0; i < 8; i++) {
            streams_.push_back(make_stream());
        }
    }

    void step() {
        const unsigned dice = below(100);
        if (dice < 50) {
            allocate();
        } else if (dice < 97) {
            release(below(10) == 0);
        } else if (dice < 98) {
            replace_stream();
        } else if (dice < 99 && !live_.empty()) {
            use_elsewhere();
        } else if (below(20) == 0) {
            sim_.trim(below(2) ? 16 * MiB : 0);
        }
    }

    void finish() {
        while (!live_.empty()) {
            release(false);
        }
    }

private:
    unsigned below(unsigned bound) { return unsigned(random_() % bound); }

    CUstream make_stream() { return below(4) == 0 ? legacy : sim_.stream(below(2) == 0); }

    CUstream any_stream() { return streams_[below(unsigned(streams_.size()))]; }

    size_t any_size() {
        const unsigned kind = below(10);
        return 1 + (kind < 6 ? below(40 * KiB) : kind < 9 ? below(2 * MiB) : below(20 * MiB));
    }

    void allocate() {
        if (live_.size() > 200) {
            return;
        }
        const size_t size = any_size();
        const CUstream stream = any_stream();
        const bool is_unordered = below(8) == 0;
        CUdeviceptr ptr = 0;
        const emm_status status = sim_.try_alloc(size, is_unordered ? unordered : stream, ptr);
        if (status == EMM_E_OUT_OF_MEMORY) { // the limit is tight
            return release(false);
        }
        INFO(last_failure().text);
        REQUIRE(status == EMM_OK);
        sim_.touch(ptr, size, stream);
        live_.push_back({ptr, size, stream});
    }

    void release(bool elsewhere) {
        if (live_.empty()) {
            return;
        }
        std::swap(live_[below(unsigned(live_.size()))], live_.back());
        const Allocation it = live_.back();
        live_.pop_back();
        CUstream stream = it.stream;
        if (elsewhere) {
            stream = any_stream();
            sim_.order(it.stream, stream);
        }
        sim_.touch(it.ptr, it.size, stream);
        CHECK(sim_.free(it.ptr, below(8) == 0 ? unordered : stream, it.size) == EMM_OK);
    }

    void use_elsewhere() {
        const Allocation &it = live_[below(unsigned(live_.size()))];
        const CUstream other = any_stream();
        sim_.order(it.stream, other);
        CHECK(pool().record_use(sim_.manager, it.ptr, it.size, other) == EMM_OK);
        sim_.touch(it.ptr, it.size, other);
        sim_.order(other, it.stream); // the owner writes again before it frees
    }

    void replace_stream() {
        CUstream &stream = streams_[below(unsigned(streams_.size()))];
        if (stream != legacy) {
            for (Allocation &it : live_) {
                if (it.stream == stream) {
                    sim_.order(stream, legacy);
                    it.stream = legacy;
                }
            }
            sim_.destroy(stream);
        }
        stream = make_stream();
    }

    Simulation &sim_;
    std::mt19937 random_;
    std::vector<CUstream> streams_;
    std::vector<Allocation> live_;
};

} // namespace

TEST_CASE("random traffic on streams that come and go is never handed memory early") {
    for (const char *options : {"", "max=192MiB", "release_threshold=8MiB", "growth=vmm",
                                "growth=vmm,max=192MiB", "growth=vmm,release_threshold=8MiB"}) {
        for (uint32_t seed = 1; seed <= 2; seed++) {
            Simulation sim(options);
            Traffic traffic(sim, seed);
            for (int i = 0; i < 2500; i++) {
                traffic.step();
            }
            traffic.finish();
            INFO(options << ", seed " << seed << ": " << cuda().last_race());
            CHECK(sim.races() == 0);
            CHECK(sim.stats().live_count == 0);
        }
    }
}

TEST_CASE("many threads, each with its own streams and each other's blocks, stay in order") {
    Simulation sim("max=512MiB");
    constexpr int threads = 8, rounds = 3000;
    std::atomic<uint64_t> failures{0};
    struct Parcel {
        std::atomic<CUdeviceptr> ptr{0};
    };
    std::vector<Parcel> parcels(64); // freed unordered by whoever comes by
    std::vector<CUstream> streams;
    for (int i = 0; i < threads; i++) {
        streams.push_back(sim.stream(i % 2 == 0));
    }
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; t++) {
        workers.emplace_back([&, t] {
            std::mt19937 random{uint32_t(t)};
            for (int i = 0; i < rounds; i++) {
                const size_t size = 1 + random() % (i % 10 ? 20 * KiB : 4 * MiB);
                const CUstream kinds[] = {streams[size_t(t)], legacy, per_thread};
                const CUstream stream = kinds[random() % 3];
                CUdeviceptr ptr = 0;
                if (sim.try_alloc(size, stream, ptr) != EMM_OK) {
                    failures++;
                    continue;
                }
                sim.touch(ptr, size, stream);
                if (random() % 4 == 0) {
                    const CUdeviceptr other = parcels[random() % 64].ptr.exchange(ptr);
                    failures += other && sim.free(other, unordered) != EMM_OK;
                } else {
                    failures += sim.free(ptr, stream, size) != EMM_OK;
                }
            }
        });
    }
    for (std::thread &worker : workers) {
        worker.join();
    }
    for (Parcel &parcel : parcels) {
        if (const CUdeviceptr ptr = parcel.ptr) {
            CHECK(sim.free(ptr, unordered) == EMM_OK);
        }
    }
    CHECK(failures == 0);
    CHECK(sim.races() == 0);
    CHECK(sim.stats().live_count == 0);
    CHECK(sim.stats().live_bytes == 0);
}

namespace {

// What one of several threads does: streams that come and go, a stream and blocks shared with the
// others, further uses, trims, and now and then a capture.
class Busy {
public:
    struct Parcel {
        std::atomic<CUdeviceptr> ptr{0};
    };
    struct Common {
        CUstream stream = nullptr;
        Parcel unordered[32]; // freed by whoever comes by, with no stream
        Parcel ordered[32];   // the same, on the common stream
        std::atomic<uint64_t> failures{0};
    };

    Busy(Simulation &sim, Common &common, uint32_t seed)
        : sim_(sim), common_(common), random_(seed) {
        cuda().cuCtxSetCurrent(sim.context);
        make_stream();
    }
    ~Busy() { drop_stream(); }

    void step() {
        const unsigned dice = below(1000);
        const CUstream stream = dice < 500 ? own_ : dice < 900 ? common_.stream : per_thread;
        const size_t size = any_size();
        CUdeviceptr ptr = 0;
        if (sim_.try_alloc(size, stream, ptr) != EMM_OK) {
            common_.failures++;
            return;
        }
        sim_.touch(ptr, size, stream);
        if (dice % 50 == 0) {
            fail_if(pool().record_use(sim_.manager, ptr, size, legacy));
        }
        if (stream == common_.stream && dice % 2 == 0) {
            hand_over(common_.ordered[below(32)], ptr, common_.stream);
        } else if (dice % 5 == 0) {
            hand_over(common_.unordered[below(32)], ptr, unordered);
        } else {
            fail_if(sim_.free(ptr, stream, size));
        }
        if (dice < 4) {
            drop_stream();
            make_stream();
        } else if (dice < 6) {
            size_t released = 0;
            fail_if(pool().trim(sim_.manager, 0, &released));
        } else if (dice < 8) {
            capture();
        }
    }

private:
    unsigned below(unsigned bound) { return unsigned(random_() % bound); }
    size_t any_size() { return 1 + below(below(8) ? 20 * KiB : below(8) ? MiB : 4 * MiB); }
    void fail_if(emm_status status) { common_.failures += status != EMM_OK; }

    void hand_over(Parcel &parcel, CUdeviceptr ptr, CUstream stream) {
        if (const CUdeviceptr other = parcel.ptr.exchange(ptr)) {
            fail_if(sim_.free(other, stream));
        }
    }
    void make_stream() {
        registered_ = below(3) != 0;
        cuda().cuStreamCreate(&own_, CU_STREAM_NON_BLOCKING);
        if (registered_) {
            fail_if(pool().stream_notice(sim_.manager, own_, EMM_STREAM_REGISTERED));
        }
    }
    void drop_stream() {
        if (registered_) {
            fail_if(pool().stream_notice(sim_.manager, own_, EMM_STREAM_RETIRING));
        }
        cuda().cuStreamDestroy(own_);
    }
    void capture() {
        fail_if(pool().stream_notice(sim_.manager, own_, EMM_STREAM_CAPTURE_BEGINS));
        cuda().cuStreamBeginCapture(own_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        CUdeviceptr ptr = 0;
        fail_if(sim_.try_alloc(3000, own_, ptr));
        sim_.touch(ptr, 3000, own_);
        fail_if(sim_.free(ptr, own_));
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        common_.failures += cuda().cuStreamEndCapture(own_, &graph) != CUDA_SUCCESS;
        fail_if(pool().stream_notice(sim_.manager, own_, EMM_STREAM_CAPTURE_ENDS));
        common_.failures += cuda().cuGraphInstantiate(&exec, graph, 0) != CUDA_SUCCESS;
        common_.failures += cuda().cuGraphLaunch(exec, own_) != CUDA_SUCCESS;
        cuda().cuGraphExecDestroy(exec);
        cuda().cuGraphDestroy(graph);
    }

    Simulation &sim_;
    Common &common_;
    std::mt19937 random_;
    CUstream own_ = nullptr;
    bool registered_ = false;
};

} // namespace

TEST_CASE("threads that come and go, with streams that do, share blocks without harm") {
    for (const char *options : {"", "max=256MiB", "release_threshold=32MiB"}) {
        Simulation sim(options);
        Busy::Common common;
        common.stream = sim.stream();
        std::vector<std::thread> threads;
        for (uint32_t t = 0; t < 6; t++) {
            threads.emplace_back([&, t] {
                for (uint32_t life = 0; life < 5; life++) { // each in a thread of its own
                    std::thread([&] {
                        Busy busy(sim, common, t * 100 + life);
                        for (int i = 0; i < 1000; i++) {
                            busy.step();
                        }
                    }).join();
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        for (size_t i = 0; i < 32; i++) {
            if (const CUdeviceptr ptr = common.unordered[i].ptr) {
                CHECK(sim.free(ptr, unordered) == EMM_OK);
            }
            if (const CUdeviceptr ptr = common.ordered[i].ptr) {
                CHECK(sim.free(ptr, common.stream) == EMM_OK);
            }
        }
        INFO(options << ": " << last_failure().text << cuda().last_race());
        CHECK(common.failures == 0);
        CHECK(sim.races() == 0);
        CHECK(sim.stats().live_count == 0);
    }
}
