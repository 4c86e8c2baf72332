// Order: memory that may still be in use is not handed out again.
#include "check/hosted.h"
#include "check/plan.h"

#include <array>
#include <atomic>
#include <random>

namespace emm::tool::check {
namespace {

constexpr std::array<size_t, 4> block_sizes = {256, 5000, 100000, 3000000};

// Two streams, both announced or neither.
struct Pair {
    const Hosted &hosted;
    const CheckedPlugin &plugin;
    bool announced;
    OwnedStream a, b;

    Pair(const Hosted &hosted_in, const CheckedPlugin &plugin_in, bool announced_in)
        : hosted(hosted_in), plugin(plugin_in), announced(announced_in) {
        if (announced) {
            hosted.enlist(a);
            hosted.enlist(b);
        }
    }
    ~Pair() {
        for (OwnedStream *owned : {&a, &b}) {
            if (announced && owned->get()) {
                emm_stream_retire(hosted.get(), owned->get());
            }
        }
    }

    emm_deviceptr used_on_a(size_t size, emm_stream on) const {
        stall(a.get(), plugin.simulated);
        const emm_deviceptr ptr = hosted.alloc(size, on);
        mark(a.get(), ptr, size, 1);
        return ptr;
    }

    // Allocates blocks of this size on `on` and uses them on b: a late write of a would show in
    // them.
    void take_on_b(size_t size, emm_stream on) const {
        std::array<emm_deviceptr, 4> blocks = {};
        for (emm_deviceptr &ptr : blocks) {
            ptr = hosted.alloc(size, on);
            mark(b.get(), ptr, size, 2);
        }
        a.synchronize();
        for (const emm_deviceptr ptr : blocks) {
            expect(is_marked(b.get(), ptr, size, 2),
                   "a block of {} bytes was handed out while its former owner was still writing",
                   size);
            hosted.free(ptr, size, b.get());
        }
    }
};

template <class Body> void in_pairs(const CheckedPlugin &plugin, const Body &body) {
    const Hosted hosted(plugin);
    for (const bool announced : {true, false}) {
        const Pair pair(hosted, plugin, announced);
        for (int round = 0; round < 3; round++) {
            for (const size_t size : block_sizes) {
                body(pair, size);
            }
        }
    }
}

void same(const CheckedPlugin &plugin) {
    in_pairs(plugin, [](const Pair &pair, size_t size) {
        for (int i = 0; i < 5; i++) {
            pair.hosted.free(pair.used_on_a(size, pair.a.get()), size, pair.a.get());
        }
    });
}

void across(const CheckedPlugin &plugin) {
    in_pairs(plugin, [](const Pair &pair, size_t size) {
        pair.hosted.free(pair.used_on_a(size, pair.a.get()), size, pair.a.get());
        pair.take_on_b(size, pair.b.get());
    });
}

void unordered_free(const CheckedPlugin &plugin) {
    in_pairs(plugin, [](const Pair &pair, size_t size) {
        const emm_deviceptr ptr = pair.used_on_a(size, EMM_STREAM_UNORDERED);
        pair.hosted.free(ptr, size, EMM_STREAM_UNORDERED);
        pair.take_on_b(size, pair.b.get());
    });
}

void unordered_alloc(const CheckedPlugin &plugin) {
    in_pairs(plugin, [](const Pair &pair, size_t size) {
        pair.hosted.free(pair.used_on_a(size, pair.a.get()), size, pair.a.get());
        pair.take_on_b(size, EMM_STREAM_UNORDERED);
    });
}

void other_uses(const CheckedPlugin &plugin) {
    in_pairs(plugin, [](const Pair &pair, size_t size) {
        const emm_deviceptr ptr = pair.hosted.alloc(size, pair.b.get());
        mark(pair.b.get(), ptr, size, 3);
        pair.a.wait_for(pair.b);
        stall(pair.a.get(), pair.plugin.simulated);
        mark(pair.a.get(), ptr, size, 1);
        const emm_status noted = emm_record_use(pair.hosted.get(), ptr, size, pair.a.get());
        if (noted == EMM_E_NOT_SUPPORTED) {
            throw Skipped("it has no record_use");
        }
        must(noted, "record_use");
        pair.hosted.free(ptr, size, pair.b.get());
        pair.take_on_b(size, pair.b.get());
    });
}

// Writes to the memory on `foreign`, whose context is current. Not every device allows such writes.
void use_elsewhere(const CheckedPlugin &plugin, emm_deviceptr ptr, size_t size,
                   const OwnedStream &foreign) {
    stall(foreign.get(), plugin.simulated);
    if (driver_calls().cuMemsetD8Async(ptr, 1, size, foreign.get()) != CUDA_SUCCESS) {
        throw Skipped("this device lets no other context use the memory");
    }
}

// All work of the plugin's own context is complete, and work of another context is not.
void other_context(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    if (!(hosted.capabilities() & EMM_PLUGIN_CACHES)) {
        throw Skipped("it does not claim EMM_PLUGIN_CACHES, so the driver gets all that is freed");
    }
    const CUcontext other = make_context();
    const OwnedStream foreign;
    enter(hosted.cuda());
    const OwnedStream own;
    for (const size_t size : block_sizes) {
        const emm_deviceptr ptr = hosted.alloc(size);
        enter(other);
        use_elsewhere(plugin, ptr, size, foreign);
        enter(hosted.cuda());
        const emm_status freed = emm_memfree(hosted.get(), ptr, size, foreign.get());
        if (freed == EMM_E_INVALID_VALUE) {
            foreign.synchronize();
            hosted.free(ptr, size);
            continue;
        }
        must(freed, "memfree on a stream of another context");
        std::array<emm_deviceptr, 4> blocks = {};
        for (emm_deviceptr &next : blocks) {
            hosted.free(hosted.alloc(8 * mib), 8 * mib);
            EMM_REQUIRE_CUDA_ENTRY(cuCtxSynchronize);
            next = hosted.alloc(size, own.get());
            mark(own.get(), next, size, 2);
        }
        foreign.synchronize();
        for (const emm_deviceptr next : blocks) {
            expect(is_marked(own.get(), next, size, 2),
                   "a block of {} bytes was handed out while a stream of another context, on which "
                   "it was freed, was still writing",
                   size);
            hosted.free(next, size);
        }
    }
}

// The legacy and the per-thread stream.
void built_in(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const OwnedStream owned;
    for (const emm_stream stream : {EMM_STREAM_LEGACY, EMM_STREAM_PER_THREAD}) {
        for (const size_t size : block_sizes) {
            const emm_deviceptr first = hosted.alloc(size, stream);
            stall(stream, plugin.simulated);
            mark(stream, first, size, 1);
            hosted.free(first, size, stream);
            const emm_deviceptr second = hosted.alloc(size, owned.get());
            mark(owned.get(), second, size, 2);
            EMM_REQUIRE_CUDA(cuStreamSynchronize, stream);
            expect(is_marked(owned.get(), second, size, 2),
                   "a block of {} bytes was handed out too early", size);
            hosted.free(second, size, owned.get());
        }
    }
}

// The simulated driver stops a program that uses a destroyed stream's handle.
void retired(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const OwnedStream other;
    for (const bool announced : {true, false}) {
        for (int round = 0; round < 10; round++) {
            OwnedStream owned;
            if (announced) {
                hosted.enlist(owned);
            }
            for (const size_t size : block_sizes) {
                const emm_deviceptr ptr = hosted.alloc(size, owned.get());
                mark(owned.get(), ptr, size, 1);
                hosted.free(ptr, size, owned.get());
            }
            if (announced) {
                hosted.retire(owned);
            }
            owned.close();
            for (const size_t size : block_sizes) {
                const emm_deviceptr ptr = hosted.alloc(size, other.get());
                mark(other.get(), ptr, size, 2);
                hosted.free(ptr, size, round % 2 ? other.get() : EMM_STREAM_UNORDERED);
            }
        }
    }
}

// A reused handle is another stream, which is not ordered behind the old stream's work.
void recycled(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    for (const size_t size : block_sizes) { // alone: a free that waits hides others
        for (int round = 0; round < 20; round++) {
            OwnedStream owned;
            const emm_stream stream = owned.get();
            const emm_deviceptr ptr = hosted.alloc(size, stream);
            mark(stream, ptr, size, 1);
            hosted.free(ptr, size, stream);
        }
    }
}

// Random allowed calls, on registered and unregistered streams.
class Traffic {
public:
    Traffic(const Hosted &hosted, uint64_t seed) : hosted_(hosted), random_(seed) {
        hosted.enlist(streams_[0]);
        hosted.enlist(streams_[1]);
    }
    ~Traffic() {
        emm_stream_retire(hosted_.get(), streams_[0].get());
        emm_stream_retire(hosted_.get(), streams_[1].get());
    }

    void step() {
        if (live_.size() < 30 && random_() % 5 < 2) {
            begin();
        } else if (!live_.empty()) {
            const size_t index = random_() % live_.size();
            if (random_() % 2) {
                use(live_[index], random_() % streams_.size());
            } else {
                end(index);
            }
        }
    }
    void finish() {
        while (!live_.empty()) {
            end(live_.size() - 1);
        }
    }

private:
    struct Block {
        emm_deviceptr ptr;
        size_t size;
        size_t last; // the stream behind which all uses are ordered
        uint8_t value;
    };

    void begin() {
        const size_t owned = random_() % streams_.size(), size = size_t(512) << (random_() % 8);
        const bool ordered = random_() % 4 != 0;
        const emm_stream stream = ordered ? streams_[owned].get() : EMM_STREAM_UNORDERED;
        live_.push_back({hosted_.alloc(size, stream), size, owned, ++next_});
        mark(streams_[owned].get(), live_.back().ptr, size, next_);
    }

    void move(Block &block, size_t owned) {
        if (owned != block.last) {
            streams_[owned].wait_for(streams_[block.last]);
            block.last = owned;
        }
    }

    void use(Block &block, size_t owned) {
        move(block, owned);
        expect(is_marked(streams_[owned].get(), block.ptr, block.size, block.value),
               "a live block of {} bytes has changed", block.size);
        mark(streams_[owned].get(), block.ptr, block.size, block.value);
    }

    void end(size_t index) {
        Block block = live_[index];
        live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
        move(block, random_() % streams_.size());
        const bool ordered = random_() % 4 != 0;
        hosted_.free(block.ptr, block.size,
                     ordered ? streams_[block.last].get() : EMM_STREAM_UNORDERED);
    }

    const Hosted &hosted_;
    std::mt19937_64 random_;
    std::array<OwnedStream, 4> streams_;
    std::vector<Block> live_;
    uint8_t next_ = 0;
};

void ordered_traffic(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    Traffic made(hosted, plugin.seed);
    for (int i = 0; i < 1500; i++) {
        made.step();
    }
    made.finish();
}

void waits_for_nobody(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    if (!(hosted.capabilities() & EMM_PLUGIN_STREAM_ORDERED)) {
        throw Skipped("it does not claim EMM_PLUGIN_STREAM_ORDERED");
    }
    static std::atomic<bool> over{false};
    const OwnedStream owned;
    std::vector<emm_deviceptr> blocks;
    for (int i = 0; i < 20; i++) {
        blocks.push_back(hosted.alloc(100000, owned.get()));
        mark(owned.get(), blocks.back(), 100000, 1);
    }
    EMM_REQUIRE_CUDA_ENTRY(
        cuLaunchHostFunc, owned.get(), [](void *) { over = true; }, nullptr);
    for (const emm_deviceptr ptr : blocks) {
        hosted.free(ptr, 100000, owned.get());
    }
    expect(!over, "it claims EMM_PLUGIN_STREAM_ORDERED, and a free waited for the stream's work");
}

} // namespace

std::vector<Case> stream_cases() {
    return {
        {"streams/same", "EMM-P-22", "a stream may have its own memory again", same, every_mode},
        {"streams/across", "EMM-P-22", "another stream gets memory when order is there", across,
         every_mode},
        {"streams/unordered-free", "EMM-P-22",
         "memory freed without a stream waits for all of them", unordered_free, every_mode},
        {"streams/unordered-alloc", "EMM-P-22",
         "memory allocated without a stream is free of all streams' work", unordered_alloc,
         every_mode},
        {"streams/built-in", "EMM-P-22", "the legacy and the per-thread stream are streams",
         built_in, every_mode},
        {"streams/traffic", "EMM-P-22", "no order of allowed calls hands memory over too early",
         ordered_traffic, every_mode},
        {"streams/other-uses", "EMM-P-23", "announced uses on other streams are waited for",
         other_uses, every_mode},
        {"streams/other-context", "EMM-P-52",
         "memory freed on a stream of another context waits for it, or the free is refused",
         other_context, every_mode},
        {"streams/retired", "EMM-P-24", "a stream is not touched when it is gone", retired,
         every_mode},
        {"streams/recycled", "EMM-P-24", "a handle that comes back is a new stream", recycled,
         every_mode},
        {"streams/waits-for-nobody", "EMM-P-41",
         "a plugin that claims to free in stream order does so", waits_for_nobody, on_simulator,
         "progress=lazy"},
    };
}

} // namespace emm::tool::check
