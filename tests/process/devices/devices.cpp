// Two devices in one process, on the simulated driver or a real one: devices [CASE...]
//
// EMM_PLUGIN selects the plugin of the memory. A case that the machine or the plugin cannot serve
// is skipped by name, and without a name all of them run; the exit status is 77 if each was
// skipped.
#include "../../parts/chance.h"
#include "../../threads/pattern.h"
#include "../share/cases.h"
#include "../share/pair.h"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <simcuda.h>
#include <thread>

using namespace share;

namespace {

constexpr size_t KiB = 1 << 10, MiB = KiB << 10;

CUcontext cuda_of(emm_context *context) {
    auto info = sized<emm_context_info>();
    CHECK(emm_context_get_info(context, &info) == EMM_OK);
    return static_cast<CUcontext>(info.cuda_context);
}

void enter(const Cuda &cuda, emm_context *context) {
    CHECK(cuda.cuCtxSetCurrent(cuda_of(context)) == CUDA_SUCCESS);
}

emm_deviceptr allocate(emm_context *context, size_t size) {
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, size, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    return ptr;
}

void free(emm_context *context, emm_deviceptr ptr, size_t size) {
    CHECK(emm_memfree(context, ptr, size, EMM_STREAM_LEGACY) == EMM_OK);
}

// --- peers

struct Block {
    emm_deviceptr ptr;
    size_t size;
    unsigned pattern;
};

// The users of memory of another device: a stream of this device, and a kernel there.
class User {
public:
    User(const Cuda &cuda, emm_context *context) : cuda_(cuda), context_(context) {
        enter(cuda_, context_);
        CHECK(cuda_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        pattern_ = std::make_unique<Pattern>(cuda_, context_);
        launch_ =
            reinterpret_cast<decltype(&simcuda_launch)>(emm_driver_entry("simcuda_launch", 12000));
    }
    // A kernel looks for the pattern of the use before, and leaves the next one.
    void use(Block &block) {
        enter(cuda_, context_);
        if (launch_) { // the simulated driver only checks a kernel's access
                       // access
            const simcuda_range range = {block.ptr, block.size, 1, 0};
            CHECK(launch_(stream_, nullptr, nullptr, &range, 1) == CUDA_SUCCESS);
        }
        pattern_->replace(block.ptr, block.size, block.pattern, block.pattern + 1, stream_);
        pattern_->read_back(block.ptr, block.size, ++block.pattern, stream_);
    }
    void end() {
        enter(cuda_, context_);
        CHECK(cuda_.cuStreamSynchronize(stream_) == CUDA_SUCCESS);
        CHECK(pattern_->errors() == 0);
        pattern_.reset();
        CHECK(cuda_.cuStreamDestroy(stream_) == CUDA_SUCCESS);
    }

private:
    const Cuda &cuda_;
    emm_context *const context_;
    CUstream stream_ = nullptr;
    std::unique_ptr<Pattern> pattern_;
    decltype(&simcuda_launch) launch_ = nullptr;
};

void add_blocks(const Cuda &cuda, emm_context *context, std::vector<Block> &blocks) {
    enter(cuda, context);
    for (const size_t size : {512 * size_t(1), 4 * KiB, 700 * KiB, 5 * MiB + 512, 96 * MiB}) {
        blocks.push_back({allocate(context, size), size, 0});
    }
    CHECK(cuda.cuCtxSynchronize() == CUDA_SUCCESS); // other streams use them
}

// Memory of `there`, before and after `here` gets access, and after a trim has brought new memory.
Outcome reach_from(const Cuda &cuda, int here_device, int there_device) {
    emm_context *here = context_on(here_device), *there = context_on(there_device);
    std::vector<Block> blocks;
    add_blocks(cuda, there, blocks);
    const emm_status given = emm_set_peer_access(there, here_device, EMM_ACCESS_READ_WRITE);
    const Outcome refusal = given < EMM_OK ? emm_last_error()->text : "";
    CHECK(given == EMM_OK || given == EMM_E_NOT_SUPPORTED);
    if (given == EMM_OK) {
        add_blocks(cuda, there, blocks);
        User user(cuda, here), owner(cuda, there);
        for (int round = 0; round < 3; ++round) {
            for (Block &block : blocks) {
                user.use(block);
                owner.use(block);
            }
            enter(cuda, here); // whatever is current, memory goes home
            const Block first = blocks.front();
            blocks.erase(blocks.begin());
            free(there, first.ptr, first.size);
            CHECK(emm_trim(there, 0, nullptr) == EMM_OK);
            add_blocks(cuda, there, blocks);
        }
        user.end();
        owner.end();
        CHECK(emm_set_peer_access(there, here_device, EMM_ACCESS_NONE) == EMM_OK);
    }
    for (const Block &block : blocks) {
        free(there, block.ptr, block.size);
    }
    CHECK(live_bytes(there) == 0);
    return refusal;
}

Outcome reach_each_other() {
    const Cuda cuda;
    for (const auto &[here, there] : {std::pair(0, 1), std::pair(1, 0)}) {
        if (!can_reach(here, there)) {
            return "the devices do not reach each other";
        }
        if (const Outcome refusal = reach_from(cuda, here, there); !refusal.empty()) {
            return refusal;
        }
    }
    return "";
}

struct Beside {
    std::atomic<bool> stop{false};
    std::atomic<size_t> made{0}; // allocations
};

// Allocates and frees until told to stop; a few blocks are left.
std::vector<Block> allocate_beside(Beside &beside, const Cuda &cuda, emm_context *context,
                                   size_t seed) {
    constexpr size_t most = 8;
    Chance chance(seed);
    std::vector<Block> blocks;
    enter(cuda, context);
    while (!beside.stop || blocks.size() < most) {
        if (blocks.size() == most) {
            const Block gone = taken_from(blocks, chance.below(most));
            free(context, gone.ptr, gone.size);
        }
        const size_t size = chance.size();
        blocks.push_back({allocate(context, size), size, 0});
        beside.made++;
    }
    return blocks;
}

// Access is given and taken while other threads allocate; in the end all live memory has it.
Outcome change_beside_threads() {
    constexpr size_t threads = 4, made_meanwhile = 16;
    constexpr int changes = 40;
    const Cuda cuda;
    emm_context *here = context_on(0), *there = context_on(1);
    if (!can_reach(0, 1)) {
        return "the devices do not reach each other";
    }
    Beside beside;
    std::array<std::vector<Block>, threads> left;
    std::vector<std::thread> running;
    for (size_t i = 0; i < threads; ++i) {
        running.emplace_back([&, i] { left[i] = allocate_beside(beside, cuda, there, i); });
    }
    emm_status given = EMM_OK;
    for (int i = 0; i <= changes && given == EMM_OK; ++i) {
        const size_t from = beside.made;
        while (beside.made < from + made_meanwhile) {
            std::this_thread::yield();
        }
        given = emm_set_peer_access(there, 0, i % 2 ? EMM_ACCESS_NONE : EMM_ACCESS_READ_WRITE);
    }
    const Outcome refusal = given < EMM_OK ? emm_last_error()->text : "";
    beside.stop = true;
    for (std::thread &each : running) {
        each.join();
    }
    enter(cuda, there);
    CHECK(cuda.cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(given == EMM_OK || given == EMM_E_NOT_SUPPORTED);
    User user(cuda, here);
    for (std::vector<Block> &blocks : left) {
        for (Block &block : blocks) {
            if (given == EMM_OK) {
                user.use(block);
            }
            free(there, block.ptr, block.size);
        }
    }
    user.end();
    CHECK(live_bytes(there) == 0);
    return refusal;
}

// --- limits

size_t total_of(emm_context *context, size_t *ret_free) {
    size_t total = 0;
    CHECK(emm_get_memory_info(context, ret_free, &total) == EMM_OK);
    return total;
}

// Whether a plugin's limit is each device's own.
Outcome limit_each() {
    const Cuda cuda;
    emm_context *first = context_on(0), *second = context_on(1);
    size_t free_first = 0, free_second = 0, before = 0, device_total = 0;
    const size_t limit = total_of(first, &free_first);
    const auto total =
        reinterpret_cast<decltype(&cuDeviceTotalMem)>(emm_driver_entry("cuDeviceTotalMem", 12000));
    CHECK(total(&device_total, 0) == CUDA_SUCCESS);
    if (limit == device_total) {
        return "the plugin has no limit";
    }
    CHECK(total_of(second, &before) == limit);
    const size_t most = limit / 4 * 3;
    enter(cuda, first);
    const emm_deviceptr held = allocate(first, most);
    CHECK(total_of(second, &free_second) == limit && free_second == before);
    enter(cuda, second);
    const emm_deviceptr other = allocate(second, most);
    CHECK(total_of(first, &free_first) == limit && free_first <= limit - most);
    emm_deviceptr none = 0;
    for (emm_context *each : {first, second}) {
        enter(cuda, each);
        CHECK(emm_memalloc(each, most, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    }
    free(first, held, most);
    CHECK(emm_memalloc(second, most, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    enter(cuda, first);
    free(first, allocate(first, most), most);
    free(second, other, most);
    return "";
}

// --- both at once

constexpr auto measured = std::chrono::milliseconds(300);
constexpr size_t pair_size = 256, pairs_between_looks = 1000;

// Pairs a second of one thread on one device, in stream order.
double rate_of(const Cuda &cuda, emm_context *context) {
    using Clock = std::chrono::steady_clock;
    enter(cuda, context);
    CUstream stream = nullptr;
    CHECK(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(emm_stream_register(context, stream) == EMM_OK);
    size_t pairs = 0;
    const auto begin = Clock::now();
    while (Clock::now() - begin < measured) {
        for (size_t i = 0; i < pairs_between_looks; ++i) {
            emm_deviceptr ptr = 0;
            CHECK(emm_memalloc(context, pair_size, stream, &ptr) == EMM_OK);
            CHECK(emm_memfree(context, ptr, pair_size, stream) == EMM_OK);
        }
        pairs += pairs_between_looks;
    }
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    CHECK(emm_stream_retire(context, stream) == EMM_OK);
    CHECK(cuda.cuStreamDestroy(stream) == CUDA_SUCCESS);
    return double(pairs) / seconds.count();
}

// Figures only: how fast a thread is on each device alone, and on both at the same time.
Outcome allocate_on_both() {
    const Cuda cuda;
    const std::array<emm_context *, 2> contexts = {context_on(0), context_on(1)};
    std::array<double, 2> alone = {}, together = {};
    for (size_t i = 0; i < 2; ++i) {
        alone[i] = rate_of(cuda, contexts[i]);
    }
    std::thread other([&] { together[1] = rate_of(cuda, contexts[1]); });
    together[0] = rate_of(cuda, contexts[0]);
    other.join();
    for (size_t i = 0; i < 2; ++i) {
        std::printf("   device %zu: %.3f million pairs a second alone, %.3f beside the other\n", i,
                    alone[i] / 1e6, together[i] / 1e6);
    }
    return "";
}

const Case cases[] = {
    {"peers", reach_each_other},
    {"peers-beside-threads", change_beside_threads},
    {"limits", limit_each},
    {"both-at-once", allocate_on_both},
};

} // namespace

int main(int argc, char *argv[]) {
    if (device_count() < 2) {
        std::puts("skipped: there is one device");
        return 77;
    }
    int passed = 0;
    for (const Case &each : cases) {
        passed += is_wanted(each, argc, argv) && passes(each);
    }
    return passed > 0 ? 0 : 77;
}
