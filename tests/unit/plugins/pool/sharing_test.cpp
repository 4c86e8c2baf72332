// Behaviour: exports of the pool to other processes, and access of other devices.
#include "simulation.h"

#include <cstring>

using namespace pool_test;

namespace {

emm_ipc_handle get_handle(Simulation &sim, CUdeviceptr ptr, size_t size) {
    emm_ipc_handle handle = {};
    const emm_status status = pool().get_ipc_handle(sim.manager, ptr, size, &handle);
    INFO(last_failure().text);
    REQUIRE(status == EMM_OK);
    return handle;
}

emm_status release(Simulation &sim, const emm_ipc_handle &handle) {
    return pool().release_ipc_handle(sim.manager, &handle);
}

emm_status refusal(Simulation &sim, CUdeviceptr ptr, size_t size) {
    emm_ipc_handle handle = {};
    const emm_status status = pool().get_ipc_handle(sim.manager, ptr, size, &handle);
    CHECK(handle.kind == 0);
    return status;
}

emm_status create_with(const char *name, const char *value, const char *other = "",
                       const char *its_value = nullptr) {
    const Simulation sim;
    auto info = sized<emm_context_info>();
    info.cuda_context = sim.context;
    std::vector<const char *> texts;
    for (const emm_option *option = pool().options; option->name; option++) {
        const bool is_name = std::strcmp(option->name, name) == 0;
        const bool is_other = std::strcmp(option->name, other) == 0;
        texts.push_back(is_name ? value : is_other ? its_value : nullptr);
    }
    emm_manager *none = nullptr;
    return pool().create(&host(), &info, texts.data(), &none);
}

} // namespace

TEST_CASE("an export names a segment and an offset in it") {
    Simulation sim;
    for (const size_t size : {size_t(700), 100 * KiB, 5 * MiB}) {
        const CUdeviceptr first = sim.alloc(size, legacy), ptr = sim.alloc(size, legacy);
        const emm_ipc_handle one = get_handle(sim, first, size);
        const emm_ipc_handle whole = get_handle(sim, ptr, size);
        const emm_ipc_handle part = get_handle(sim, ptr + 256, size - 300);
        CHECK(whole.kind == EMM_IPC_LEGACY);
        CHECK(whole.size == size);
        CHECK(whole.exported_size % (2 * MiB) == 0);
        CHECK(part.offset == whole.offset + 256);
        CHECK(part.size == size - 300);
        CHECK(std::memcmp(part.handle, whole.handle, sizeof part.handle) == 0);
        if (std::memcmp(one.handle, whole.handle, sizeof one.handle) == 0) {
            CHECK(whole.offset - one.offset == ptr - first);
        }
        for (const emm_ipc_handle &handle : {one, whole, part}) {
            CHECK(release(sim, handle) == EMM_OK);
        }
        CHECK(sim.free(ptr, legacy, size) == EMM_OK);
        CHECK(sim.free(first, legacy, size) == EMM_OK);
    }
}

TEST_CASE("only what is live is exported, and each export ends once") {
    Simulation sim;
    const CUdeviceptr ptr = sim.alloc(3 * MiB, legacy);
    CHECK(refusal(sim, ptr, 3 * MiB + 1) == EMM_E_INVALID_VALUE);
    CHECK(refusal(sim, ptr + MiB, 2 * MiB + 1) == EMM_E_INVALID_VALUE);
    CHECK(refusal(sim, ptr + 3 * MiB, 1) == EMM_E_NOT_OWNED);
    CHECK(refusal(sim, 0x1234567000, 1) == EMM_E_NOT_OWNED);
    emm_ipc_handle handle = get_handle(sim, ptr, MiB);
    const emm_ipc_handle again = get_handle(sim, ptr, MiB);
    handle.magic = 7; // the host's fields identify nothing here
    CHECK(release(sim, handle) == EMM_OK);
    CHECK(release(sim, again) == EMM_OK);
    CHECK(release(sim, handle) == EMM_E_NOT_OWNED);
    CHECK(sim.free(ptr, legacy) == EMM_OK);
    CHECK(refusal(sim, ptr, 1) == EMM_E_NOT_OWNED);
}

TEST_CASE(
    "exported memory that is freed is neither given out nor given back until its export ends") {
    for (const char *options : {"max=8MiB", "max=8MiB,release_threshold=0MiB"}) {
        Simulation sim(options);
        const CUstream stream = sim.stream();
        const CUdeviceptr ptr = sim.alloc(6 * MiB, stream);
        const emm_ipc_handle whole = get_handle(sim, ptr, 6 * MiB);
        const emm_ipc_handle part = get_handle(sim, ptr + MiB, MiB);
        CHECK(sim.free(ptr, stream) == EMM_OK);
        CHECK(sim.free(ptr, stream) == EMM_E_NOT_OWNED);
        CHECK(sim.trim() == 0);
        CHECK(sim.stats().pending_bytes == 6 * MiB);
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(6 * MiB, stream, none) == EMM_E_OUT_OF_MEMORY);
        CHECK(sim.held() == 6 * MiB);
        CHECK(release(sim, whole) == EMM_OK);
        CHECK(sim.try_alloc(6 * MiB, stream, none) == EMM_E_OUT_OF_MEMORY);
        CHECK(release(sim, part) == EMM_OK);
        CHECK(sim.free(sim.alloc(6 * MiB, stream), stream) == EMM_OK);
        sim.trim();
        CHECK(sim.held() == 0);
    }
}

TEST_CASE("a slot that is exported stays when its slab is idle") {
    Simulation sim;
    const CUdeviceptr ptr = sim.alloc(4 * KiB, legacy);
    const emm_ipc_handle handle = get_handle(sim, ptr, 4 * KiB);
    CHECK(sim.free(ptr, legacy) == EMM_OK);
    CHECK(sim.trim() == 0);
    for (int i = 0; i < 100; i++) {
        CHECK(sim.alloc(4 * KiB, legacy) != ptr);
    }
    CHECK(release(sim, handle) == EMM_OK);
}

TEST_CASE("an allocation whose exports have ended is one like any other") {
    Simulation sim;
    const CUstream stream = sim.stream(), other = sim.stream();
    const CUdeviceptr ptr = sim.alloc(4 * MiB, stream);
    CHECK(release(sim, get_handle(sim, ptr, MiB)) == EMM_OK);
    CHECK(sim.free(ptr, stream) == EMM_OK);
    CHECK(sim.alloc(4 * MiB, stream) == ptr);
    // With a further use, in either order.
    const emm_ipc_handle handle = get_handle(sim, ptr, MiB);
    CHECK(pool().record_use(sim.manager, ptr, 4 * MiB, other) == EMM_OK);
    sim.touch(ptr, 4 * MiB, other);
    CHECK(sim.free(ptr, stream) == EMM_OK);
    CHECK(release(sim, handle) == EMM_OK);
    const CUdeviceptr next = sim.alloc(4 * MiB, stream);
    sim.touch(next, 4 * MiB, stream);
    CHECK(sim.free(next, stream) == EMM_OK);
}

TEST_CASE("a reset drops exported memory with the rest, and its exports") {
    Simulation sim;
    const CUdeviceptr kept = sim.alloc(4 * MiB, legacy), freed = sim.alloc(4 * MiB, legacy);
    const emm_ipc_handle first = get_handle(sim, kept, MiB), second = get_handle(sim, freed, MiB);
    CHECK(sim.free(freed, legacy) == EMM_OK);
    CHECK(pool().reset(sim.manager) == EMM_OK);
    CHECK(sim.held() == 0);
    CHECK(release(sim, first) == EMM_E_NOT_OWNED);
    CHECK(release(sim, second) == EMM_E_NOT_OWNED);
    CHECK(sim.stats().pending_bytes == 0);
}

TEST_CASE("a driver that gives no handle leaves nothing exported") {
    Simulation sim;
    const CUdeviceptr ptr = sim.alloc(4 * MiB, legacy);
    cuda().fail("cuIpcGetMemHandle@1");
    CHECK(refusal(sim, ptr, MiB) < EMM_OK);
    CHECK_THAT(last_failure().text, ContainsSubstring("cuIpcGetMemHandle"));
    cuda().fail("");
    CHECK(sim.free(ptr, legacy) == EMM_OK);
    CHECK(sim.trim() == 4 * MiB);
}

TEST_CASE("memory of pages needs a host that serves it, and the refusal says what does not") {
    Simulation sim("growth=vmm");
    const CUdeviceptr ptr = sim.alloc(4 * MiB, legacy);
    CHECK(refusal(sim, ptr, MiB) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(last_failure().text, ContainsSubstring("growth=segment"));
}

TEST_CASE("dedicated: an export shows its allocation and nothing else") {
    Simulation sim("ipc=dedicated");
    const CUdeviceptr small = sim.alloc(4 * KiB, legacy), block = sim.alloc(MiB - 512, legacy);
    for (const CUdeviceptr shared : {small, block}) {
        CHECK(refusal(sim, shared, 1) == EMM_E_NOT_SUPPORTED);
        CHECK_THAT(last_failure().text, ContainsSubstring("dedicated_from"));
    }
    std::vector<std::string> handles;
    for (const size_t size : {MiB - 511, MiB, 2 * MiB, 5 * MiB}) {
        const CUdeviceptr ptr = sim.alloc(size, legacy);
        const emm_ipc_handle handle = get_handle(sim, ptr + 512, size - 512);
        CHECK(handle.offset == 512);
        CHECK(handle.exported_size == (size + 2 * MiB - 1) / (2 * MiB) * (2 * MiB));
        const std::string bytes(reinterpret_cast<const char *>(handle.handle), 64);
        CHECK(std::find(handles.begin(), handles.end(), bytes) == handles.end());
        handles.push_back(bytes);
    }
}

TEST_CASE("dedicated: a segment serves one allocation after another, whole") {
    Simulation sim("ipc=dedicated,dedicated_from=64KiB");
    const CUstream stream = sim.stream(), other = sim.stream();
    sim.free(sim.alloc(64 * MiB, stream), stream); // a peak, below which idle segments are kept
    sim.trim();
    const CUdeviceptr ptr = sim.alloc(7 * MiB, stream);
    sim.touch(ptr, 7 * MiB, stream);
    const uint64_t held = sim.held(), calls = cuda().call_count("cuMemAlloc");
    for (const size_t size : {7 * MiB, 8 * MiB - 1, 6 * MiB + 1}) {
        CHECK(sim.free(ptr, stream) == EMM_OK);
        CHECK(sim.alloc(size, stream) == ptr);
    }
    CHECK(cuda().call_count("cuMemAlloc") == calls);
    CHECK(sim.held() == held);
    CHECK(sim.free(ptr, stream) == EMM_OK);
    // Neither a small request nor a much smaller one gets a piece of it.
    for (const size_t size : {4 * KiB, 60 * KiB, 3 * MiB}) {
        const CUdeviceptr elsewhere = sim.alloc(size, stream);
        CHECK((elsewhere < ptr || elsewhere >= ptr + 8 * MiB));
    }
    // Another stream gets the block once the work is done.
    CHECK(cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(sim.alloc(7 * MiB, other) == ptr);
    sim.touch(ptr, 7 * MiB, other);
    CHECK(sim.free(ptr, other) == EMM_OK);
    CHECK(sim.trim() >= 8 * MiB);
}

TEST_CASE("dedicated: idle segments make room for others when memory is short") {
    Simulation sim("ipc=dedicated,max=12MiB");
    const CUstream stream = sim.stream(), other = sim.stream();
    for (const size_t size : {8 * MiB, 64 * KiB, 10 * MiB, 2 * MiB}) {
        for (const CUstream each : {stream, other, unordered}) {
            const CUdeviceptr ptr = sim.alloc(size, each);
            sim.touch(ptr, size, each == unordered ? stream : each);
            if (each == unordered) {
                REQUIRE(cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
            }
            CHECK(sim.free(ptr, each) == EMM_OK);
        }
    }
}

TEST_CASE("dedicated: what cannot be meant is refused at the start") {
    CHECK(create_with("dedicated_from", "4KiB") == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(last_failure().text, ContainsSubstring("64KiB"));
    CHECK(create_with("ipc", "dedicated", "growth", "vmm") == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(last_failure().text, ContainsSubstring("growth=segment"));
}

namespace {

// Device 1, whose primary context has access to all memory of another context, or none.
class Peer {
public:
    explicit Peer(CUcontext owner) : owner_(owner) {
        REQUIRE(cuda().cuDevicePrimaryCtxRetain(&context_, 1) == CUDA_SUCCESS);
    }
    CUresult enable() const { return call(cuda().cuCtxEnablePeerAccess, owner_, 0u); }
    CUresult disable() const { return call(cuda().cuCtxDisablePeerAccess, owner_); }
    bool has_access() const {
        const bool had_none = enable() == CUDA_SUCCESS;
        return !(had_none && disable() == CUDA_SUCCESS);
    }

private:
    template <class Entry, class... Arguments> CUresult call(Entry entry, Arguments... all) const {
        cuda().cuCtxPushCurrent(context_);
        const CUresult result = entry(all...);
        CUcontext popped = nullptr;
        cuda().cuCtxPopCurrent(&popped);
        return result;
    }
    const CUcontext owner_;
    CUcontext context_ = nullptr;
};

void let_in(emm_manager *manager, uint32_t flags) {
    CHECK(pool().set_access(manager, 1, flags) == EMM_OK);
}

} // namespace

TEST_CASE("a peer keeps its access until the last pool of the context takes it back") {
    Simulation sim("growth=segment");
    const Peer peer(sim.context);
    emm_manager *other = nullptr;
    REQUIRE(create("growth=segment", sim.context, other) == EMM_OK);
    let_in(sim.manager, EMM_ACCESS_READ_WRITE);
    let_in(other, EMM_ACCESS_READ_WRITE);
    let_in(other, EMM_ACCESS_READ_WRITE);
    let_in(other, EMM_ACCESS_NONE);
    CHECK(peer.has_access());
    let_in(other, EMM_ACCESS_READ_WRITE);
    let_in(sim.manager, EMM_ACCESS_NONE);
    CHECK(peer.has_access());
    let_in(sim.manager, EMM_ACCESS_READ_WRITE);
    CHECK(pool().destroy(other) == EMM_OK);
    CHECK(peer.has_access());
    sim.close();
    CHECK(!peer.has_access());
}

TEST_CASE("a peer keeps the access that the program itself has given") {
    Simulation sim("growth=segment");
    const Peer peer(sim.context);
    CHECK(peer.enable() == CUDA_SUCCESS);
    let_in(sim.manager, EMM_ACCESS_NONE);
    CHECK(peer.has_access());
    let_in(sim.manager, EMM_ACCESS_READ_WRITE);
    let_in(sim.manager, EMM_ACCESS_NONE);
    CHECK(peer.has_access());
    CHECK(peer.disable() == CUDA_SUCCESS);
}

TEST_CASE("a change of a peer's access that the driver refuses changes nothing") {
    Simulation sim("growth=segment");
    const Peer peer(sim.context);
    cuda().fail("cuCtxEnablePeerAccess@1:2");
    CHECK(pool().set_access(sim.manager, 1, EMM_ACCESS_READ_WRITE) == EMM_E_DRIVER);
    CHECK(!peer.has_access());
    let_in(sim.manager, EMM_ACCESS_READ_WRITE);
    cuda().fail("cuCtxDisablePeerAccess@1:999");
    CHECK(pool().set_access(sim.manager, 1, EMM_ACCESS_NONE) == EMM_E_DRIVER);
    cuda().fail("");
    CHECK(peer.has_access());
    let_in(sim.manager, EMM_ACCESS_NONE);
    CHECK(!peer.has_access());
}
