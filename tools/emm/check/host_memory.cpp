// Pinned, registered and managed memory, by the plugin or by emm in its place.
#include "check/bare.h"
#include "check/hosted.h"
#include "check/plan.h"

#include <cstdlib>
#include <cstring>
#include <memory>

namespace emm::tool::check {
namespace {

void check_pinned(const Hosted &hosted, size_t size, uint32_t flags) {
    void *host = nullptr;
    emm_deviceptr device = 77;
    must(emm_memhostalloc(hosted.get(), size, flags, &host, &device), "memhostalloc");
    expect(host && reinterpret_cast<uintptr_t>(host) % 256 == 0,
           "pinned memory lies at {}: expected a multiple of 256", host);
    expect((device != 0) == ((flags & EMM_HOST_MAPPED) != 0),
           "with flags {} its device address is 0x{:x}", flags, device);
    std::memset(host, 0x44, size);
    if (device) {
        expect(is_marked(nullptr, device, size, 0x44), "the device sees other bytes than the host");
    }
    must(emm_memhostfree(hosted.get(), host, size % 2 ? 0 : size, flags, EMM_STREAM_UNORDERED),
         "memhostfree");
}

void pinned(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    for (const uint32_t flags : {0u, EMM_HOST_PORTABLE, EMM_HOST_MAPPED, EMM_HOST_WRITE_COMBINED,
                                 EMM_HOST_PORTABLE | EMM_HOST_MAPPED, 7u}) {
        for (const size_t size : {size_t(1), size_t(4096), size_t(100001), 5 * mib}) {
            check_pinned(hosted, size, flags);
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

void pinned_leaks(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().memhostalloc, "it leaves pinned memory to emm");
    const uint64_t before = held_bytes();
    BareManager manager(bare);
    for (int i = 0; i < 20; i++) {
        void *host = nullptr;
        emm_deviceptr device = 0;
        EMM_MUST(manager, memhostalloc, mib, 0u, &host, &device);
        if (i % 2) {
            EMM_MUST(manager, memhostfree, host, mib, 0u, EMM_STREAM_UNORDERED);
        }
    }
    manager.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    expect(held_bytes() == before, "{} bytes are still taken from the driver after destroy",
           held_bytes() - before);
}

void pinned_wrong_size(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const emm_plugin &slots = bare.slots();
    need(slots.memhostalloc, "it leaves pinned memory to emm");
    const BareManager manager(bare);
    void *host = nullptr;
    emm_deviceptr device = 0;
    EMM_MUST(manager, memhostalloc, mib, 0u, &host, &device);
    for (const size_t other : {size_t(64), 64 * mib}) {
        const emm_status status =
            EMM_SLOT(manager, memhostfree, host, other, 0u, EMM_STREAM_UNORDERED);
        if (status >= EMM_OK && !slots.query && !slots.get_stats) {
            throw Skipped("it keeps no account of sizes");
        }
        expect(status == EMM_E_INVALID_VALUE,
               "a free of {} pinned bytes as {} returns {}: expected {} (EMM_E_INVALID_VALUE)", mib,
               other, status, EMM_E_INVALID_VALUE);
    }
    const emm_status status = EMM_SLOT(manager, memhostfree, host, mib, 0u, EMM_STREAM_UNORDERED);
    expect(status >= EMM_OK, "after refused frees memhostfree returns {}: {}", status,
           last_said().text);
}

void registered(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const std::unique_ptr<void, decltype(&std::free)> range(std::aligned_alloc(65536, 262144),
                                                            &std::free);
    std::memset(range.get(), 0x55, 262144);
    for (int round = 0; round < 3; round++) {
        emm_deviceptr device = 0;
        must(emm_mempin(hosted.get(), range.get(), 262144, EMM_HOST_MAPPED, &device), "mempin");
        expect(device != 0, "a mapped range has no device address");
        expect(is_marked(nullptr, device, 262144, 0x55), "the device sees other bytes");
        emm_deviceptr again = 77;
        const emm_status second =
            emm_mempin(hosted.get(), range.get(), 262144, EMM_HOST_MAPPED, &again);
        expect(second == EMM_E_BUSY, "pinning a range a second time returns {}: expected {}",
               second, EMM_E_BUSY);
        must(emm_memunpin(hosted.get(), range.get(), round % 2 ? 0 : 262144), "memunpin");
    }
    const emm_status status = emm_memunpin(hosted.get(), range.get(), 262144);
    expect(status == EMM_E_NOT_OWNED, "unpinning twice returns {}: expected {}", status,
           EMM_E_NOT_OWNED);
}

void managed(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    for (const size_t size : {size_t(1), size_t(100000), 3 * mib}) {
        emm_deviceptr ptr = 0;
        const emm_status got = emm_memallocmanaged(hosted.get(), size, EMM_ATTACH_GLOBAL, &ptr);
        if (got == EMM_E_NOT_SUPPORTED) {
            throw Skipped("there is no managed memory here");
        }
        must(got, "memallocmanaged");
        expect(ptr % 256 == 0, "managed memory lies at 0x{:x}: expected a multiple of 256", ptr);
        std::memset(reinterpret_cast<void *>(ptr), 0x66, size);
        expect(is_marked(nullptr, ptr, size, 0x66), "the device sees other bytes than the host");
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
        {"host/leaks", "EMM-P-32 EMM-P-11", "destroy returns pinned memory too", pinned_leaks,
         on_simulator},
        {"host/wrong-size", "EMM-P-50", "pinned memory is not freed with another size",
         pinned_wrong_size},
        {"host/registered", "EMM-P-33", "a range is pinned once, and unpinned at once", registered},
        {"host/managed", "EMM-P-34", "managed memory is whole and aligned", managed},
    };
}

} // namespace emm::tool::check
