// Device memory: allocations and frees.
#include "check/bare.h"
#include "check/hosted.h"
#include "check/plan.h"
#include "check/traffic.h"

#include <limits>
#include <random>

namespace emm::tool::check {
namespace {

constexpr size_t everything = std::numeric_limits<size_t>::max();

void alignment(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    std::vector<std::pair<emm_deviceptr, size_t>> blocks;
    for (const size_t size : {1, 3, 255, 256, 257, 511, 513, 1000, 4095, 4097, 65537, 1048577}) {
        for (int i = 0; i < 4; i++) {
            const emm_deviceptr ptr = hosted.alloc(size);
            expect(ptr % 256 == 0, "a block of {} bytes lies at 0x{:x}: expected a multiple of 256",
                   size, ptr);
            blocks.emplace_back(ptr, size);
        }
    }
    for (const auto &[ptr, size] : blocks) {
        hosted.free(ptr, size);
    }
}

// Powers of two and their neighbours, up to the device's memory.
void sizes(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    size_t free = 0, total = 0;
    must(emm_get_memory_info(hosted.get(), &free, &total), "get_memory_info");
    LiveSet live(hosted);
    for (size_t power = 1; power <= free / 4; power *= 2) {
        for (const size_t size : {power - 1, power, power + 1}) {
            if (size > 0) {
                live.add(size);
            }
        }
        if (power >= (size_t(64) << 20)) {
            live.clear();
        }
    }
    live.clear();
}

void traffic(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    LiveSet live(hosted);
    std::mt19937_64 random(plugin.seed);
    for (int i = 0; i < 2000; i++) {
        if (live.count() > 100 || (live.count() > 0 && random() % 3 == 0)) {
            live.remove(random() % live.count());
        } else {
            live.add(1 + random() % (size_t(1) << (random() % 22)));
        }
    }
    live.clear();
}

void exhaustion(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    constexpr size_t piece = size_t(32) << 20;
    std::vector<emm_deviceptr> blocks;
    emm_status status = EMM_OK;
    for (size_t i = 0; i < 100 && status >= EMM_OK; i++) {
        emm_deviceptr ptr = 0;
        status = emm_memalloc(hosted.get(), piece, EMM_STREAM_LEGACY, &ptr);
        if (status >= EMM_OK) {
            blocks.push_back(ptr);
        }
    }
    if (blocks.size() < 8) {
        hosted.skip_if_limited(status);
    }
    expect(status == EMM_E_OUT_OF_MEMORY,
           "with {} blocks of 32 MiB taken from a device of 512 MiB it returns {}: expected {} "
           "(EMM_E_OUT_OF_MEMORY)",
           blocks.size(), status, EMM_E_OUT_OF_MEMORY);
    expect(blocks.size() >= 8, "it ran out of memory after {} of 16 blocks", blocks.size());
    hosted.free(blocks.back(), piece, EMM_STREAM_LEGACY);
    const emm_status again = emm_memalloc(hosted.get(), piece, EMM_STREAM_LEGACY, &blocks.back());
    expect(
        again >= EMM_OK,
        "with the device full, a block of 32 MiB was freed, and one of 32 MiB cannot be had: does "
        "memfree give memory back, or use it again? ({})",
        emm_last_error()->text);
    for (const emm_deviceptr ptr : blocks) {
        hosted.free(ptr, piece, EMM_STREAM_LEGACY);
    }
    hosted.free(hosted.alloc(8 * piece, EMM_STREAM_LEGACY), 8 * piece, EMM_STREAM_LEGACY);
}

void absurd(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const BareManager manager(bare);
    for (const size_t size : {everything, everything - 1, everything - 255, everything - 4095,
                              everything / 2 + 1, size_t(1) << 50}) {
        emm_deviceptr ptr = 77;
        const emm_status status = EMM_SLOT(manager, memalloc, size, EMM_STREAM_LEGACY, &ptr);
        expect(status == EMM_E_OUT_OF_MEMORY || status == EMM_E_INVALID_VALUE,
               "memalloc of {} bytes returns {}: expected {} (EMM_E_OUT_OF_MEMORY) or {} "
               "(EMM_E_INVALID_VALUE)",
               size, status, EMM_E_OUT_OF_MEMORY, EMM_E_INVALID_VALUE);
    }
    const emm_deviceptr ptr = manager.alloc(256);
    manager.free(ptr, 256);
}

void free_without_size(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    for (int round = 0; round < 50; round++) {
        for (const size_t size : {1, 300, 5000, 70000, 3000000}) {
            hosted.free(hosted.alloc(size), round % 2 ? 0 : size);
        }
    }
}

void refuse(const BareManager &manager, emm_deviceptr ptr, size_t size, const char *what) {
    const emm_status status = EMM_SLOT(manager, memfree, ptr, size, EMM_STREAM_LEGACY);
    expect(status == EMM_E_NOT_OWNED, "{} returns {}: expected {} (EMM_E_NOT_OWNED)", what, status,
           EMM_E_NOT_OWNED);
}

void wrong_free(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const BareManager manager(bare);
    const emm_deviceptr kept = manager.alloc(1 << 20), gone = manager.alloc(1 << 20);
    mark(nullptr, kept, 1 << 20, 0x5a);
    manager.free(gone, 1 << 20, EMM_STREAM_LEGACY);
    refuse(manager, gone, 1 << 20, "a second free");
    refuse(manager, kept + 256, 0, "a free of an address inside a block");
    refuse(manager, 0x7000, 256, "a free of an address that was never handed out");
    expect(is_marked(nullptr, kept, 1 << 20, 0x5a), "a refused free changed a live block");
    manager.free(kept, 1 << 20, EMM_STREAM_LEGACY);
}

// A plugin with query or statistics knows the size of live memory.
void wrong_size(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const BareManager manager(bare);
    constexpr size_t size = 5 * mib;
    const emm_deviceptr ptr = manager.alloc(size);
    mark(nullptr, ptr, size, 0x5a);
    for (const size_t other : {size_t(64), 64 * mib}) {
        const emm_status status = EMM_SLOT(manager, memfree, ptr, other, EMM_STREAM_LEGACY);
        if (status >= EMM_OK && !bare.slots().query && !bare.slots().get_stats) {
            throw Skipped("it keeps no account of sizes");
        }
        expect(status == EMM_E_INVALID_VALUE,
               "a free of a block of {} bytes as {} returns {}: expected {} (EMM_E_INVALID_VALUE)",
               size, other, status, EMM_E_INVALID_VALUE);
    }
    expect(is_marked(nullptr, ptr, size, 0x5a), "a refused free changed the block");
    manager.free(ptr, size, EMM_STREAM_LEGACY);
}

void refuse_request(const BareManager &manager, size_t size, emm_stream stream) {
    const uint64_t held = held_bytes();
    const emm_stats before = manager.stats();
    emm_deviceptr ptr = 0;
    const emm_status status = EMM_SLOT(manager, memalloc, size, stream, &ptr);
    run_deferred(EMM_DEFERRED_RUN);
    if (status >= EMM_OK && manager.stats().spilled_bytes > before.spilled_bytes) {
        manager.free(ptr, size, stream);
        throw Skipped("it has host memory in place of the device's");
    }
    expect(status < EMM_OK, "{} bytes were handed out: the driver has not as many", size);
    const emm_stats after = manager.stats();
    const auto no_more = [size](const char *what, uint64_t is, uint64_t was) {
        expect(is <= was, "a request for {} bytes failed, and {} went from {} to {}", size, what,
               was, is);
    };
    no_more("what the driver has handed out", held_bytes(), held);
    no_more("reserved_bytes", after.reserved_bytes, before.reserved_bytes);
    no_more("peak_reserved_bytes", after.peak_reserved_bytes, before.peak_reserved_bytes);
    no_more("peak_live_bytes", after.peak_live_bytes, before.peak_live_bytes);
}

// Requests beyond the memory that another library left free, and beyond all memory.
void failed_request(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    CUdeviceptr others = 0;
    EMM_REQUIRE_CUDA(cuMemAlloc, &others, 256 * mib);
    const BareManager manager(bare);
    const uint64_t of_host = counters().host_bytes;
    const emm_deviceptr kept = manager.alloc(64 * mib);
    // A plugin that also serves from host memory may give more than the device has.
    const bool exceeds = counters().host_bytes >= of_host + 64 * mib;
    for (const size_t size :
         {(exceeds ? 4096 : 300) * mib, (exceeds ? 8192 : 512) * mib, 16384 * mib}) {
        for (const emm_stream stream : {EMM_STREAM_LEGACY, EMM_STREAM_UNORDERED}) {
            refuse_request(manager, size, stream);
        }
    }
    manager.free(manager.alloc(128 * mib), 128 * mib);
    manager.free(kept, 64 * mib);
    EMM_REQUIRE_CUDA(cuMemFree, others);
}

// destroy returns all memory to the driver, handed out or not.
void leaks(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const uint64_t before = held_bytes();
    BareManager manager(bare);
    for (const size_t size : {1, 1000, 40000, 1000000, 30000000}) {
        const emm_deviceptr freed[] = {manager.alloc(size), manager.alloc(size)};
        manager.alloc(size); // stays
        manager.free(freed[0], size, either_way(0));
        manager.free(freed[1], size, either_way(1));
    }
    manager.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    expect(held_bytes() == before, "destroy left {} bytes that the driver has not got back",
           held_bytes() - before);
}

} // namespace

std::vector<Case> memory_cases() {
    return {
        {"memory/alignment", "EMM-P-12", "device memory is aligned to 256 bytes", alignment},
        {"memory/sizes", "EMM-P-13", "blocks of every size are whole and apart from each other",
         sizes},
        {"memory/traffic", "EMM-P-13", "blocks stay whole and apart while others come and go",
         traffic},
        {"memory/exhaustion", "EMM-P-14", "it reports that memory ran out, and recovers",
         exhaustion, on_simulator, "memory=512MiB"},
        {"memory/absurd", "EMM-P-14", "sizes that no device has are refused", absurd},
        {"memory/failed", "EMM-P-55", "a request that fails takes nothing", failed_request,
         on_simulator, "memory=512MiB"},
        {"memory/no-size", "EMM-P-17", "a free need not know the size", free_without_size},
        {"memory/wrong-free", "EMM-P-18", "an address that is not live is not freed", wrong_free},
        {"memory/wrong-size", "EMM-P-50", "a free with another size is refused", wrong_size},
        {"memory/leaks", "EMM-P-11", "destroy returns everything to the driver", leaks,
         on_simulator},
    };
}

} // namespace emm::tool::check
