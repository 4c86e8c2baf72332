// Behaviour: a device's bound (EMM_LIMIT=1GiB) holds over all contexts and managers of a program
// that links libemm.
#include "gpu.h"

#include <memory>
#include <vector>

namespace {

constexpr size_t mib = 1 << 20, bound = 1024 * mib;

emm_device_account account() {
    auto account = sized<emm_device_account>();
    REQUIRE(emm_get_device_account(0, &account) == EMM_OK);
    return account;
}

// The driver's figure, without the memory of contexts.
class DeviceBytes {
public:
    DeviceBytes() : before_(device_bytes()) {}
    uint64_t taken() const { return device_bytes() - before_; }

private:
    const uint64_t before_;
};

struct Block {
    const Gpu *gpu;
    emm_deviceptr ptr;
    size_t size;
};

// Takes blocks of `size` in turn, until the first refusal in each context.
std::vector<Block> take_all(const std::vector<std::unique_ptr<Gpu>> &gpus, size_t size) {
    std::vector<Block> blocks;
    for (size_t full = 0, i = 0; full < gpus.size(); i++) {
        const Gpu &gpu = *gpus[i % gpus.size()];
        emm_deviceptr ptr = 0;
        const emm_status status = emm_memalloc(gpu.emm(), size, EMM_STREAM_UNORDERED, &ptr);
        if (status == EMM_OK) {
            blocks.push_back({&gpu, ptr, size});
        }
        full = status == EMM_OK ? 0 : full + 1;
        REQUIRE((status == EMM_OK || status == EMM_E_OUT_OF_MEMORY));
    }
    return blocks;
}

void free_all(const std::vector<Block> &blocks) {
    for (const Block &block : blocks) {
        CHECK(block.gpu->free(block.ptr, block.size) == EMM_OK);
    }
}

std::vector<std::unique_ptr<Gpu>> make_gpus(size_t count) {
    std::vector<std::unique_ptr<Gpu>> gpus;
    for (size_t i = 0; i < count; i++) {
        gpus.push_back(std::make_unique<Gpu>());
    }
    return gpus;
}

} // namespace

TEST_CASE("one and three contexts obtain the bound, within 1 %, and no more") {
    for (const size_t contexts : {1, 3}) {
        const auto gpus = make_gpus(contexts);
        const DeviceBytes device;
        const std::vector<Block> blocks = take_all(gpus, 4 * mib);
        const uint64_t obtained = blocks.size() * 4 * mib;
        INFO(plugin_name() << ", " << contexts << " contexts");
        CHECK(obtained <= bound);
        CHECK(obtained >= bound / 100 * 99);
        CHECK(device.taken() <= bound);
        CHECK(account().used_bytes == device.taken());
        CHECK(account().limit_bytes == bound);
        free_all(blocks);
    }
    CHECK(account().used_bytes == 0);
}

TEST_CASE("what one pool keeps makes room for its siblings within the bound") {
    const Gpu gpu;
    constexpr size_t most = bound - 64 * mib;
    emm_context *pool = context_named(gpu.emm(), "kv-cache");
    for (emm_context *const each : {gpu.emm(), pool, gpu.emm()}) {
        emm_deviceptr ptr = allocate_in(each, most);
        CHECK(account().used_bytes <= bound);
        CHECK(emm_memfree(each, ptr, most, EMM_STREAM_UNORDERED) == EMM_OK);
    }
}

TEST_CASE("what one context keeps makes room for another before a request fails") {
    const Gpu one, other;
    constexpr size_t most = bound - 64 * mib;
    CHECK(one.free(one.allocate(most), most) == EMM_OK);
    const emm_deviceptr ptr = other.allocate(most);
    CHECK(account().used_bytes <= bound);
    CHECK(other.free(ptr, most) == EMM_OK);
}

TEST_CASE("the figures of a context are the bound's") {
    const Gpu gpu;
    size_t free = 0, total = 0;
    REQUIRE(emm_get_memory_info(gpu.emm(), &free, &total) == EMM_OK);
    CHECK(total == bound);
    CHECK(free == bound - account().used_bytes);
    REQUIRE(emm_get_device_total(0, &total) == EMM_OK);
    CHECK(total == bound);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(gpu.emm(), bound + mib, EMM_STREAM_UNORDERED, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("EMM_LIMIT"));
}

TEST_CASE("pinned, managed and external memory have rows of their own, outside of the bound") {
    const Gpu gpu;
    void *host = nullptr;
    emm_deviceptr managed = 0;
    REQUIRE(emm_memhostalloc(gpu.emm(), 64 * mib, 0, &host, nullptr) == EMM_OK);
    const uint64_t used = account().used_bytes;
    REQUIRE(emm_memallocmanaged(gpu.emm(), 2 * bound, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
    CHECK(account().managers[EMM_MEMORY_PINNED].bytes >= 64 * mib);
    CHECK(account().managers[EMM_MEMORY_MANAGED].bytes == 2 * bound);
    const emm_driver_memory external = {sizeof external, 0,      EMM_MEMORY_EXTERNAL, 0,
                                        2 * bound,       nullptr};
    uint64_t id = 0;
    REQUIRE(emm_take_driver_memory(&external, &id) == EMM_OK);
    REQUIRE(emm_keep_driver_memory(id, nullptr) == EMM_OK);
    CHECK(account().program[EMM_MEMORY_EXTERNAL].bytes == 2 * bound);
    CHECK(account().used_bytes == used);
    CHECK(emm_give_driver_memory(id) == EMM_OK);
    CHECK(account().program[EMM_MEMORY_EXTERNAL].bytes == 0);
    CHECK(emm_memhostfree(gpu.emm(), host, 64 * mib, 0, EMM_STREAM_UNORDERED) == EMM_OK);
    CHECK(emm_memfreemanaged(gpu.emm(), managed, 2 * bound, EMM_STREAM_UNORDERED) == EMM_OK);
}

TEST_CASE("memory that a program charges makes managers give back, and then is refused") {
    const Gpu gpu;
    constexpr size_t most = bound - 64 * mib;
    CHECK(gpu.free(gpu.allocate(most), most) == EMM_OK); // cached, or pending
    emm_driver_memory memory = {sizeof memory, 0, EMM_MEMORY_PHYSICAL, 0, most, nullptr};
    uint64_t id = 0, none = 0;
    REQUIRE(emm_take_driver_memory(&memory, &id) == EMM_OK);
    REQUIRE(emm_keep_driver_memory(id, nullptr) == EMM_OK);
    CHECK(account().program[EMM_MEMORY_PHYSICAL].bytes == most);
    CHECK(emm_take_driver_memory(&memory, &none) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("the program's physical memory 960"));
    CHECK(none == 0);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(gpu.emm(), 80 * mib, EMM_STREAM_UNORDERED, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK(emm_give_driver_memory(id) == EMM_OK);
    CHECK(emm_give_driver_memory(id) == EMM_E_NOT_OWNED);
    CHECK(gpu.free(gpu.allocate(most), most) == EMM_OK);
}

// The pool must spill.
TEST_CASE("host memory in place of the device's is pinned memory, which no bound counts",
          "[.spill]") {
    const Gpu gpu;
    const DeviceBytes device;
    const emm_deviceptr first = gpu.allocate(bound / 4 * 3), second = gpu.allocate(bound / 2);
    const emm_device_account now = account();
    CHECK(gpu.stats().spilled_bytes >= bound / 2);
    CHECK(now.managers[EMM_MEMORY_PINNED].bytes == gpu.stats().spilled_bytes);
    CHECK(now.used_bytes == device.taken());
    CHECK(now.managers_bytes == device.taken());
    CHECK(now.used_bytes <= bound);
    CHECK(gpu.free(first, bound / 4 * 3) == EMM_OK);
    CHECK(gpu.free(second, bound / 2) == EMM_OK);
    CHECK(emm_trim(gpu.emm(), 0, nullptr) == EMM_OK);
    CHECK(account().managers[EMM_MEMORY_PINNED].bytes == 0);
}

// At most one report in 10 s, so this case has a process of its own.
TEST_CASE("the report at a full bound names the bound, each kind and holder", "[.report]") {
    const Gpu gpu;
    emm_driver_memory memory = {sizeof memory, 0, EMM_MEMORY_PHYSICAL, 0, bound / 4, nullptr};
    uint64_t id = 0;
    REQUIRE(emm_take_driver_memory(&memory, &id) == EMM_OK);
    REQUIRE(emm_keep_driver_memory(id, nullptr) == EMM_OK);
    const emm_deviceptr held = gpu.allocate(bound / 2);
    emm_deviceptr ptr = 0;
    REQUIRE(emm_memalloc(gpu.emm(), bound, EMM_STREAM_UNORDERED, &ptr) == EMM_E_OUT_OF_MEMORY);
    const std::string report = emm_last_error()->report;
    CHECK_THAT(report, ContainsSubstring("\"full\":\"bound\""));
    CHECK_THAT(report, ContainsSubstring("used: managers' "));
    CHECK_THAT(report, ContainsSubstring("the program's physical memory 256.00 MiB"));
    CHECK(gpu.free(held, bound / 2) == EMM_OK);
    CHECK(emm_give_driver_memory(id) == EMM_OK);
}

TEST_CASE("a context that dies takes nothing of the account with it", "[sim]") {
    {
        Gpu gpu;
        gpu.allocate(100 * mib);
        gpu.kill();
        emm_context_retire(gpu.emm());
    }
    const Gpu gpu; // emm now finds out the end that it was not told of
    CHECK(account().used_bytes <= 64 * mib);
}

TEST_CASE("an account is exact after any driver call fails", "[sim]") {
    for (const char *call : {"cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
                             "cuMemUnmap", "cuMemRelease", "cuMemPoolCreate",
                             "cuMemAllocFromPoolAsync", "cuMemPoolTrimTo", "cuMemPoolDestroy"}) {
        const Gpu keeps_the_device;
        const DeviceBytes device;
        const uint64_t before = account().used_bytes;
        for (int at = 1; at <= 3; at++) {
            auto gpu = std::make_unique<Gpu>();
            fail_next((std::string(call) + "@" + std::to_string(at)).c_str());
            emm_deviceptr ptr = 0;
            if (emm_memalloc(gpu->emm(), 100 * mib, EMM_STREAM_UNORDERED, &ptr) == EMM_OK) {
                gpu->free(ptr, 100 * mib);
            }
            emm_trim(gpu->emm(), 0, nullptr);
            fail_next("");
            INFO(plugin_name() << ", " << call << "@" << at);
            CHECK(account().used_bytes - before == device.taken());
        }
    }
}
