// Behaviour: CUDA's promises about memory shared between processes: the same on real hardware and
// simulated.
#include "cuda_driver.h"
#include "ipc_message.h"

#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

class Peer {
public:
    Peer() {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        REQUIRE(fcntl(ends[1], F_SETFD, 0) == 0); // the peer gets only its own end
        std::string number = std::to_string(ends[1]);
        char program[] = "ipc-peer";
        char *arguments[] = {program, number.data(), nullptr};
        REQUIRE(posix_spawn(&process_, path().c_str(), nullptr, nullptr, arguments, environ) == 0);
        close(ends[1]);
        socket_ = ends[0];
    }
    ~Peer() {
        close(socket_);
        waitpid(process_, nullptr, 0);
    }
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    Reply ask(const Request &request, int descriptor = -1) const {
        Reply reply;
        int none;
        REQUIRE(send_message(socket_, request, descriptor));
        REQUIRE(receive_message(socket_, reply, none));
        return reply;
    }

private:
    // Beside this program.
    static std::string path() {
        char self[4096] = "";
        const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        const std::string whole(self, length > 0 ? static_cast<size_t>(length) : 0);
        return whole.substr(0, whole.rfind('/')) + "/ipc-peer";
    }
    pid_t process_ = 0;
    int socket_ = -1;
};

Request legacy_request(char what, CUdeviceptr address) {
    Request request;
    request.what = what;
    request.offset = 100;
    request.write = 8;
    REQUIRE(cu().cuIpcGetMemHandle(&request.handle, address) == CUDA_SUCCESS);
    return request;
}

} // namespace

TEST_CASE("a legacy handle opens the same memory in another process, twice at one address") {
    const Peer peer;
    const Device device;
    const Block block(4 << 20);
    REQUIRE(cu().cuMemsetD8(block, 5, 4 << 20) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    const Reply reply = peer.ask(legacy_request('l', block));
    CHECK(reply.first == CUDA_SUCCESS);
    CHECK(reply.again == CUDA_SUCCESS);
    CHECK(reply.same_address);
    CHECK(reply.read == 5);
    CHECK(byte_at(block + 100) == 8);
    CHECK(byte_at(block + 101) == 5);
}

TEST_CASE("a legacy handle names the whole block, whatever part was asked about") {
    const Peer peer;
    const Device device;
    const Block block(4 << 20);
    REQUIRE(cu().cuMemsetD8(block, 5, 4 << 20) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    const Reply reply = peer.ask(legacy_request('l', block + (1 << 20)));
    CHECK(reply.first == CUDA_SUCCESS);
    CHECK(byte_at(block + 100) == 8);
}

TEST_CASE("the exporter cannot open its own handle") {
    const Device device;
    const Block block(4 << 20);
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    REQUIRE(cu().cuIpcGetMemHandle(&handle, block) == CUDA_SUCCESS);
    CHECK(cu().cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
          CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a second context of the device may not open what the first has open") {
    const Peer peer;
    const Device device;
    const Block block(4 << 20);
    const Reply reply = peer.ask(legacy_request('c', block));
    CHECK(reply.first == CUDA_SUCCESS);
    CHECK(reply.again != CUDA_SUCCESS);
}

TEST_CASE("physical memory goes to another process by descriptor") {
    const Peer peer;
    const Device device;
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAccessDesc access = {};
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const size_t size = 2 << 20;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    int descriptor = -1;
    REQUIRE(cu().cuMemCreate(&handle, size, &wanted, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAddressReserve(&address, size, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemMap(address, size, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemSetAccess(address, size, &access, 1) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8(address, 5, size) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(cu().cuMemExportToShareableHandle(
                &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    Request request;
    request.what = 'd';
    request.size = size;
    request.offset = 100;
    request.write = 8;
    const Reply reply = peer.ask(request, descriptor);
    CHECK(reply.first == CUDA_SUCCESS);
    CHECK(reply.again == CUDA_SUCCESS);
    CHECK(reply.read == 5);
    CHECK(byte_at(address + 100) == 8);
    CHECK(close(descriptor) == 0);
    CHECK(cu().cuMemUnmap(address, size) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(address, size) == CUDA_SUCCESS);
}

TEST_CASE("physical memory goes with the last process that has a descriptor of it") {
    const Device device;
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const auto free_bytes = [] {
        size_t free = 0;
        REQUIRE(cu().cuMemGetInfo(&free, nullptr) == CUDA_SUCCESS);
        return free;
    };
    const size_t before = free_bytes(), size = 64 << 20;
    CUmemGenericAllocationHandle handle = 0;
    int descriptor = -1;
    REQUIRE(cu().cuMemCreate(&handle, size, &wanted, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemExportToShareableHandle(
                &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    const pid_t child = fork(); // with the descriptor
    if (child == 0) {
        pause();
        _exit(0);
    }
    CHECK(close(descriptor) == 0);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(free_bytes() <= before - size);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, nullptr, 0) == child);
    CHECK(free_bytes() >= before);
}

TEST_CASE("a pool goes to another process by descriptor, once, and its memory by name") {
    const Peer peer;
    const Device device;
    const Stream stream;
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool = nullptr;
    CUdeviceptr address = 0;
    int descriptor = -1;
    REQUIRE(cu().cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAllocFromPoolAsync(&address, 4096, pool, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8Async(address, 5, 4096, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    Request request;
    CHECK(cu().cuMemPoolExportPointer(&request.pointer, address) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().cuMemPoolExportToShareableHandle(
                &descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    request.what = 'p';
    request.offset = 100;
    request.write = 8;
    CHECK(cu().cuMemPoolExportPointer(&request.pointer, address + 512) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().cuMemPoolExportPointer(&request.pointer, address) == CUDA_SUCCESS);
    const Reply reply = peer.ask(request, descriptor);
    CHECK(reply.first == CUDA_SUCCESS);
    CHECK(reply.again == CUDA_SUCCESS);
    CHECK(reply.read == 5);
    CHECK(reply.same_pool);
    CHECK(reply.same_address);
    CHECK(reply.early == CUDA_ERROR_INVALID_VALUE);
    CHECK(reply.destroyed == CUDA_SUCCESS);
    CHECK(byte_at(address + 100) == 8);
    CHECK(close(descriptor) == 0);
    CHECK(cu().cuMemFreeAsync(address, stream) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(cu().cuMemPoolDestroy(pool) == CUDA_SUCCESS);
}
