// The exporter is played by the test.
#include "../../core/driver_calls.h"
#include "../../core/host_memory.h"
#include "../../core/recorder.h"
#include "core/record/context.h"
#include "sharing/handle/stamp.h"
#include "sharing/handle/wire.h"
#include "sockets/server.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

using namespace emm;
using namespace emm::sharing;

namespace {

constexpr size_t part_bytes = 2 << 20;

// A handle of memory on the context's device, as another process would make it.
template <class Content>
emm_ipc_handle handle_from_elsewhere(const emm_context &context, uint32_t kind,
                                     const Content &content, emm_deviceptr ptr, uint64_t bytes,
                                     uint32_t network) {
    emm_ipc_handle handle = {};
    handle.kind = kind;
    handle.size = handle.exported_size = bytes;
    handle.generation = 1;
    static_assert(sizeof content == sizeof handle.handle);
    std::memcpy(handle.handle, &content, sizeof content);
    REQUIRE(stamp(context, ptr, handle) == EMM_OK);
    handle.nonce[0] ^= 1;
    handle.flags = network;
    handle.checksum = checksum_of(&handle, offsetof(emm_ipc_handle, checksum));
    return handle;
}

// One of so many bytes in so many parts.
emm_ipc_handle handle_of_parts(const emm_context &context, uint64_t bytes, uint32_t network,
                               uint64_t parts = 1) {
    const DescriptorHandle content = {{7}, parts, {}};
    return handle_from_elsewhere(context, EMM_IPC_FILE_DESCRIPTOR, content, 0, bytes, network);
}

// The exporter gives this out.
struct Exported {
    emm_ipc_handle handle = {};
    int descriptor = -1;
};
Exported exported;

void answer(int socket, const void *request, long size) noexcept {
    if (what_is_asked(request, size) == Asked::handle) {
        const HandleReply reply = {handle_magic, EMM_OK, exported.handle};
        sockets::send_message(socket, &reply, sizeof reply, nullptr, 0);
        return;
    }
    Reply reply = {};
    reply.magic = wire_magic;
    reply.count = 1; // in a message
    DescriptorHandle content;
    std::memcpy(&content, exported.handle.handle, sizeof content);
    reply.total = exported.handle.kind == EMM_IPC_POOL ? 1 : content.parts;
    reply.bytes = exported.handle.exported_size;
    reply.sizes[0] = part_bytes;
    sockets::send_message(socket, &reply, sizeof reply, &exported.descriptor, 1);
}

constinit sockets::Listener listener;
constinit sockets::Server server(listener, answer_timeout, &answer);

void begin_serving() {
    REQUIRE(listener.open(socket_name(exported.handle.nonce), 8) == 0);
    REQUIRE(sockets::start_thread("exporter", [] { server.run(); }));
}

// A descriptor of device memory.
int export_part() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle memory = 0;
    int descriptor = -1;
    REQUIRE(CU(cuMemCreate)(&memory, part_bytes, &properties, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemExportToShareableHandle)(
                &descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    return descriptor;
}

// A pool with memory, on device 0: the memory's handle, and the pool's descriptor.
Exported export_pool(const emm_context &context) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool = nullptr;
    CUdeviceptr ptr = 0;
    CUmemPoolPtrExportData name = {};
    Exported made;
    REQUIRE(CU(cuCtxSetCurrent)(context.cuda_context) == CUDA_SUCCESS);
    using Allocate = CUresult (*)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
    REQUIRE(CU(cuMemPoolCreate)(&pool, &properties) == CUDA_SUCCESS);
    REQUIRE(driver_entry<Allocate>("cuMemAllocFromPoolAsync")(&ptr, part_bytes, pool, nullptr) ==
            CUDA_SUCCESS);
    REQUIRE(CU(cuMemPoolExportToShareableHandle)(&made.descriptor, pool,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemPoolExportPointer)(&name, ptr) == CUDA_SUCCESS);
    made.handle =
        handle_from_elsewhere(context, EMM_IPC_POOL, name, ptr, part_bytes, network_namespace());
    return made;
}

bool has_primary_context(int device) {
    unsigned flags = 0;
    int is_active = 0;
    REQUIRE(CU(cuDevicePrimaryCtxGetState)(device, &flags, &is_active) == CUDA_SUCCESS);
    return is_active != 0;
}

} // namespace

TEST_CASE("parts that have fewer bytes than the export are refused, and those that fit are not") {
    emm_context *context = recorded_context();
    emm_memory *memory = nullptr;
    exported.descriptor = export_part();
    exported.handle = handle_of_parts(*context, 2 * part_bytes, network_namespace());
    begin_serving();
    CHECK(emm_memory_open_ipc(context, &exported.handle, &memory) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("parts: expected 4194304 bytes in all, found 2097152"));
    exported.handle = handle_of_parts(*context, part_bytes, network_namespace());
    CHECK(emm_memory_open_ipc(context, &exported.handle, &memory) == EMM_OK);
    CHECK(emm_memory_release(memory) == EMM_OK);
}

#if EMM_TEST_FAILS_ALLOCATIONS
TEST_CASE("an import for which host memory runs out at any moment leaves nothing mapped") {
    emm_context *context = recorded_context();
    const CallCount calls = simulated_call_count();
    if (!calls) {
        return;
    }
    exported.descriptor = export_part();
    exported.handle = handle_of_parts(*context, 3 * part_bytes, network_namespace(), 3);
    begin_serving();
    emm_status status = EMM_E_OUT_OF_HOST_MEMORY;
    uint64_t moment = 0;
    for (; status == EMM_E_OUT_OF_HOST_MEMORY && moment < 1000; ++moment) {
        emm_memory *memory = nullptr;
        allocations_left = moment;
        status = emm_memory_open_ipc(context, &exported.handle, &memory);
        allocations_left = UINT64_MAX;
        has_memory = true;
        emm_memory_release(memory);
        INFO("allocation " << moment);
        CHECK(calls("cuMemUnmap") == calls("cuMemMap"));
        CHECK(calls("cuMemAddressFree") == calls("cuMemAddressReserve"));
    }
    INFO(emm_last_error()->text);
    CHECK(status == EMM_OK);
    CHECK(moment > 3);
}
#endif

TEST_CASE("a pool is left when the last mapping of its memory is closed") {
    int told[2], ended[2];
    REQUIRE((pipe(told) == 0 && pipe(ended) == 0));
    const pid_t exporter = fork(); // before there is a driver
    if (exporter == 0) {
        close(ended[1]);
        try {
            exported = export_pool(*recorded_context());
            begin_serving();
        } catch (...) {
            _exit(1);
        }
        char byte;
        const ssize_t sent = write(told[1], &exported.handle, sizeof exported.handle);
        _exit(sent > 0 && read(ended[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(told[1]);
    emm_ipc_handle handle = {};
    REQUIRE(read(told[0], &handle, sizeof handle) == sizeof handle);
    emm_context *context = recorded_context();
    const CallCount calls = simulated_call_count();
    for (uint64_t round = 1; round < 3; ++round) {
        emm_memory *memory = nullptr;
        REQUIRE(emm_memory_open_ipc(context, &handle, &memory) == EMM_OK);
        CHECK((!calls || calls("cuMemPoolDestroy") == round - 1));
        CHECK(emm_memory_release(memory) == EMM_OK);
        CHECK((!calls || calls("cuMemPoolDestroy") == round));
    }
    close(ended[1]);
    int status = 1;
    CHECK((waitpid(exporter, &status, 0) == exporter && status == 0));
}

TEST_CASE("a copy is made by the program's own context of the device that has the memory") {
    setenv("EMM_SIM", "devices=2", 1);
    setenv("EMM_IPC_STAGED", "1", 1);
    emm_context *context = recorded_context(), *over_there = nullptr;
    int devices = 0;
    REQUIRE(CU(cuDeviceGetCount)(&devices) == CUDA_SUCCESS);
    if (devices < 2) {
        WARN("skipped: there is one device only");
        return;
    }
    REQUIRE(emm_context_from(new_context(1), &over_there) == EMM_OK);
    const auto handle = handle_of_parts(*over_there, part_bytes, network_namespace() ^ 1);
    emm_memory *memory = nullptr;
    CHECK(emm_memory_open_ipc(context, &handle, &memory) < EMM_OK); // no exporter is there
    CHECK_FALSE(has_primary_context(1));
}
