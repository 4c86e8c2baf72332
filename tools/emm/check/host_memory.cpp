// Pinned, registered and managed memory, by the plugin or by emm in its place.
#include "check/bare.h"
#include "check/hosted.h"
#include "check/plan.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

namespace emm::tool::check {
namespace {

// Live blocks of host memory, pinned or managed, each with bytes of its own.
struct HostBlock {
    void *host;
    emm_deviceptr device; // 0: none
    size_t size;
};

void expect_apart(const std::vector<HostBlock> &blocks) {
    for (size_t i = 0; i < blocks.size(); i++) {
        std::memset(blocks[i].host, int(0x44 + i), blocks[i].size);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        const auto &[host, device, size] = blocks[i];
        const auto *bytes = static_cast<const unsigned char *>(host);
        const auto value = uint8_t(0x44 + i);
        expect(reinterpret_cast<uintptr_t>(host) % 256 == 0,
               "host memory lies at {}: expected a multiple of 256", host);
        expect(bytes[0] == value && bytes[size - 1] == value,
               "two live blocks of host memory overlap");
        expect(!device || is_marked(nullptr, device, size, value),
               "the device sees other bytes than the host");
    }
}

constexpr size_t host_sizes[] = {1, 4096, 4096, 100001, 5 * mib};

void pinned(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    for (const uint32_t flags : {0u, EMM_HOST_PORTABLE, EMM_HOST_MAPPED, EMM_HOST_WRITE_COMBINED,
                                 EMM_HOST_PORTABLE | EMM_HOST_MAPPED, 7u}) {
        std::vector<HostBlock> blocks;
        for (const size_t size : host_sizes) {
            HostBlock block = {nullptr, 77, size};
            must(emm_memhostalloc(hosted.get(), size, flags, &block.host, &block.device),
                 "memhostalloc");
            expect((block.device != 0) == ((flags & EMM_HOST_MAPPED) != 0),
                   "with flags {} its device address is 0x{:x}", flags, block.device);
            blocks.push_back(block);
        }
        expect_apart(blocks);
        for (const auto &[host, device, size] : blocks) {
            must(emm_memhostfree(hosted.get(), host, size % 2 ? 0 : size, flags,
                                 EMM_STREAM_UNORDERED),
                 "memhostfree");
        }
    }
}

// Pinned memory that a stream still reads or writes is not handed out again.
void pinned_streams(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    OwnedStream owned;
    hosted.enlist(owned);
    for (int round = 0; round < 10; round++) {
        void *host = nullptr, *next = nullptr;
        emm_deviceptr device = 0;
        must(emm_memhostalloc(hosted.get(), mib, EMM_HOST_MAPPED, &host, &device), "memhostalloc");
        stall(owned.get(), plugin.simulated);
        mark(owned.get(), device, mib, 1);
        must(emm_memhostfree(hosted.get(), host, mib, EMM_HOST_MAPPED,
                             round % 2 ? owned.get() : EMM_STREAM_UNORDERED),
             "memhostfree");
        must(emm_memhostalloc(hosted.get(), mib, EMM_HOST_MAPPED, &next, &device), "memhostalloc");
        std::memset(next, 2, mib);
        owned.synchronize();
        const auto *bytes = static_cast<const unsigned char *>(next);
        expect(bytes[0] == 2 && bytes[mib - 1] == 2,
               "pinned memory was handed out while a stream was still writing to it");
        must(emm_memhostfree(hosted.get(), next, mib, EMM_HOST_MAPPED, EMM_STREAM_UNORDERED),
             "memhostfree");
    }
    hosted.retire(owned);
}

// Portable memory in use by a stream of another context.
class Shared {
public:
    Shared(const BareManager &manager, CUcontext here) : manager_(manager), here_(here) {}

    // Marks in the first and last bytes show the use.
    unsigned char *take(size_t size = mib) {
        void *host = nullptr;
        emm_deviceptr device = 0;
        EMM_MUST(manager_, memhostalloc, size, flags, &host, &device);
        blocks_.push_back({host, device, size});
        auto *const bytes = static_cast<unsigned char *>(host);
        bytes[0] = bytes[size - 1] = 2;
        return bytes;
    }
    void use(CUcontext context, const OwnedStream &owned, bool simulated) const {
        enter(context);
        stall(owned.get(), simulated);
        for (const Block &block : blocks_) {
            mark(owned.get(), block.device, block.size, 1);
        }
        enter(here_);
    }
    void free_all() {
        for (const Block &block : std::exchange(blocks_, {})) {
            EMM_MUST(manager_, memhostfree, block.host, block.size, flags, EMM_STREAM_UNORDERED);
        }
    }

private:
    struct Block {
        void *host;
        emm_deviceptr device;
        size_t size;
    };
    static constexpr uint32_t flags = EMM_HOST_PORTABLE | EMM_HOST_MAPPED;
    const BareManager &manager_;
    CUcontext here_;
    std::vector<Block> blocks_;
};

enum class Loss { reset, destroyed };

// A late write of the other context's stream would show in memory that was handed out too early.
void lose_other(const CheckedPlugin &plugin, const Bare &bare, Loss loss, bool freed_first) {
    const CUcontext here = enter_device();
    const BareManager mine(bare);
    Shared used(mine, here), next(mine, here);
    for (int i = 0; i < 4; i++) {
        used.take();
    }
    const CUcontext there = make_context();
    OwnedStream owned;
    BareManager other(bare); // without memory: returning memory would wait for the stream
    used.use(there, owned, plugin.simulated);
    if (freed_first) {
        used.free_all();
        next.take(2 * mib); // a call in which the manager looks for completed work
    }
    enter(there);
    if (loss == Loss::reset) {
        EMM_MUST(other, reset);
    } else {
        other.destroy();
    }
    enter(here);
    used.free_all();
    std::vector<unsigned char *> found;
    for (int i = 0; i < 60; i++) {
        found.push_back(next.take());
    }
    enter(there);
    owned.synchronize();
    owned.close();
    if (loss == Loss::reset) {
        other.destroy();
    }
    run_deferred(EMM_DEFERRED_RUN);
    EMM_REQUIRE_CUDA_ENTRY(cuCtxDestroy, there);
    enter(here);
    for (const unsigned char *bytes : found) {
        expect(bytes[0] == 2 && bytes[mib - 1] == 2,
               "portable memory was handed out while a stream of another context, whose manager "
               "has been {}, was still writing to it",
               loss == Loss::reset ? "reset" : "destroyed");
    }
    next.free_all();
}

void portable(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().memhostalloc, "it leaves pinned memory to emm");
    for (const bool freed_first : {true, false}) {
        if (bare.slots().reset) { // otherwise emm destroys and creates
            lose_other(plugin, bare, Loss::reset, freed_first);
        }
        lose_other(plugin, bare, Loss::destroyed, freed_first);
    }
}

// A range of the program's own.
class Range {
public:
    Range() { std::memset(at_.get(), 0x55, size); }
    void *get() const { return at_.get(); }
    static constexpr size_t size = 262144;

private:
    std::unique_ptr<void, decltype(&std::free)> at_{std::aligned_alloc(65536, size), &std::free};
};

// One block of each kind that the plugin has slots for. A managed one has an address alone.
struct Kind {
    const char *what;
    void *live, *dead; // the latter was never handed out
    std::function<emm_status(void *, size_t)> free;
};

std::vector<Kind> each_kind(const BareManager &manager, const Range &range) {
    const emm_plugin &slots = manager.slots();
    std::vector<Kind> kinds;
    static unsigned char elsewhere[4096];
    emm_deviceptr device = 0;
    void *host = nullptr;
    if (slots.memhostalloc) {
        EMM_MUST(manager, memhostalloc, Range::size, 0u, &host, &device);
        kinds.push_back({"pinned memory", host, elsewhere, [&](void *at, size_t bytes) {
                             return EMM_SLOT(manager, memhostfree, at, bytes, 0u,
                                             EMM_STREAM_UNORDERED);
                         }});
    }
    if (slots.mempin) {
        EMM_MUST(manager, mempin, range.get(), Range::size, 0u, &device);
        kinds.push_back({"a pinned range", range.get(), elsewhere, [&](void *at, size_t bytes) {
                             return EMM_SLOT(manager, memunpin, at, bytes);
                         }});
    }
    if (slots.memallocmanaged) {
        EMM_MUST(manager, memallocmanaged, Range::size, EMM_ATTACH_GLOBAL, &device);
        kinds.push_back({"managed memory", reinterpret_cast<void *>(device), elsewhere,
                         [&](void *at, size_t bytes) {
                             return EMM_SLOT(manager, memfreemanaged, emm_deviceptr(at), bytes,
                                             EMM_STREAM_UNORDERED);
                         }});
    }
    if (kinds.empty()) {
        throw Skipped("it leaves host memory to emm");
    }
    return kinds;
}

// Half of the blocks stay.
void host_leaks(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const uint64_t before = held_bytes();
    const Range range;
    BareManager manager(bare);
    for (int i = 0; i < 20; i++) {
        for (const Kind &kind : each_kind(manager, range)) {
            if (i % 2 == 0 || (kind.live == range.get() && i < 19)) {
                kind.free(kind.live, 0);
            }
        }
    }
    manager.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    expect(held_bytes() == before, "{} bytes are still taken from the driver after destroy",
           held_bytes() - before);
    expect(EMM_DRIVER_ENTRY(cuMemHostUnregister)(range.get()) != CUDA_SUCCESS,
           "a range is still pinned after destroy");
}

void host_wrong_free(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const Range range;
    const BareManager manager(bare);
    for (const Kind &kind : each_kind(manager, range)) {
        const auto refuse = [&](void *at, const char *how) {
            const emm_status status = kind.free(at, 0);
            expect(status == EMM_E_NOT_OWNED, "a free of {} that {} returns {}: expected {}",
                   kind.what, how, status, EMM_E_NOT_OWNED);
        };
        refuse(kind.dead, "was never handed out");
        expect(kind.free(kind.live, 0) >= EMM_OK, "a free of {} fails: {}", kind.what,
               last_said().text);
        refuse(kind.live, "is free already");
    }
}

void host_wrong_size(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const emm_plugin &slots = bare.slots();
    const Range range;
    const BareManager manager(bare);
    for (const Kind &kind : each_kind(manager, range)) {
        for (const size_t other : {size_t(64), 64 * mib}) {
            const emm_status status = kind.free(kind.live, other);
            if (status >= EMM_OK && !slots.query && !slots.get_stats) {
                throw Skipped("it keeps no account of sizes");
            }
            expect(status == EMM_E_INVALID_VALUE,
                   "a free of {} of {} bytes as {} returns {}: expected {} (EMM_E_INVALID_VALUE)",
                   kind.what, Range::size, other, status, EMM_E_INVALID_VALUE);
        }
        const emm_status status = kind.free(kind.live, Range::size);
        expect(status >= EMM_OK, "after refused frees of {} a good one returns {}: {}", kind.what,
               status, last_said().text);
    }
}

void registered(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const Range range;
    for (int round = 0; round < 3; round++) {
        emm_deviceptr device = 0;
        must(emm_mempin(hosted.get(), range.get(), Range::size, EMM_HOST_MAPPED, &device),
             "mempin");
        expect(device != 0, "a mapped range has no device address");
        expect(is_marked(nullptr, device, Range::size, 0x55), "the device sees other bytes");
        emm_deviceptr again = 77;
        const emm_status second =
            emm_mempin(hosted.get(), range.get(), Range::size, EMM_HOST_MAPPED, &again);
        expect(second == EMM_E_BUSY, "pinning a range a second time returns {}: expected {}",
               second, EMM_E_BUSY);
        must(emm_memunpin(hosted.get(), range.get(), round % 2 ? 0 : Range::size), "memunpin");
    }
    const emm_status status = emm_memunpin(hosted.get(), range.get(), Range::size);
    expect(status == EMM_E_NOT_OWNED, "unpinning twice returns {}: expected {}", status,
           EMM_E_NOT_OWNED);
}

void managed(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    std::vector<HostBlock> blocks;
    for (const size_t size : host_sizes) {
        emm_deviceptr ptr = 0;
        const emm_status got = emm_memallocmanaged(hosted.get(), size, EMM_ATTACH_GLOBAL, &ptr);
        if (got == EMM_E_NOT_SUPPORTED) {
            throw Skipped("there is no managed memory here");
        }
        must(got, "memallocmanaged");
        blocks.push_back({reinterpret_cast<void *>(ptr), ptr, size});
    }
    expect_apart(blocks);
    for (const auto &[host, ptr, size] : blocks) {
        must(emm_memfreemanaged(hosted.get(), ptr, size, EMM_STREAM_UNORDERED), "memfreemanaged");
    }
}

} // namespace

std::vector<Case> host_memory_cases() {
    return {
        {"host/pinned", "EMM-P-32", "pinned memory is aligned, whole and mapped as asked", pinned},
        {"host/streams", "EMM-P-32", "pinned memory is not handed over too early", pinned_streams,
         every_mode},
        {"host/portable", "EMM-P-53",
         "portable memory waits for contexts whose manager is reset or gone", portable, 0,
         "progress=timed,duration=1000000000"},
        {"host/leaks", "EMM-P-32 EMM-P-11 EMM-P-34", "destroy returns host memory, and unpins",
         host_leaks, on_simulator},
        {"host/wrong-free", "EMM-P-18 EMM-P-32 EMM-P-33 EMM-P-34",
         "host memory that is not live is not freed", host_wrong_free},
        {"host/wrong-size", "EMM-P-50", "host memory is not freed with another size",
         host_wrong_size},
        {"host/registered", "EMM-P-33", "a range is pinned once, and unpinned at once", registered},
        {"host/managed", "EMM-P-34", "managed memory is whole and aligned", managed},
    };
}

} // namespace emm::tool::check
