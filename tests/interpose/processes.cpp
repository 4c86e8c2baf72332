#include "cases.h"
#include "objects.h"

#include <cstdio>
#include <cstdlib>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

// Starts this program once more, with its way to find the driver and these arguments.
pid_t start(const std::string &how, std::vector<std::string> more) {
    more.insert(more.begin(), {"client", how});
    std::vector<char *> arguments;
    for (std::string &argument : more) {
        arguments.push_back(argument.data());
    }
    arguments.push_back(nullptr);
    std::fflush(nullptr);
    pid_t process = -1;
    return posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) == 0
               ? process
               : -1;
}

int status_of(pid_t process) {
    int status = 0;
    return process > 0 && waitpid(process, &status, 0) == process && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

template <typename Message> bool put(int descriptor, const Message &message) {
    return write(descriptor, &message, sizeof message) == static_cast<ssize_t>(sizeof message);
}

template <typename Message> bool take(int descriptor, Message &message) {
    return read(descriptor, &message, sizeof message) == static_cast<ssize_t>(sizeof message);
}

} // namespace

// Before cuInit, only calls that need no driver work.
void before_init_case() {
    CUdeviceptr address = 0;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    void *host = nullptr;
    size_t size = 0, total = 0;
    unsigned word = 0;
    int number = 0;
    CUipcMemHandle handle = {};
    const struct {
        const char *name;
        CUresult got;
    } calls[] = {
        {"cuDeviceGetCount", cu.cuDeviceGetCount(&number)},
        {"cuDeviceTotalMem", cu.cuDeviceTotalMem(&size, 0)},
        {"cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(&context, 0)},
        {"cuCtxCreate", cu.cuCtxCreate_v2(&context, 0, 0)},
        {"cuCtxSynchronize", cu.cuCtxSynchronize()},
        {"cuMemGetInfo", cu.cuMemGetInfo(&size, &total)},
        {"cuMemAlloc", cu.cuMemAlloc(&address, 4096)},
        {"cuMemAllocPitch", cu.cuMemAllocPitch(&address, &size, 4096, 1, 4)},
        {"cuMemAllocManaged", cu.cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL)},
        {"cuMemFree", cu.cuMemFree(4096)},
        {"cuMemAllocAsync", cu.cuMemAllocAsync(&address, 4096, nullptr)},
        {"cuMemAllocFromPoolAsync", cu.cuMemAllocFromPoolAsync(&address, 4096, pool, nullptr)},
        {"cuMemFreeAsync", cu.cuMemFreeAsync(4096, nullptr)},
        {"cuMemHostAlloc", cu.cuMemHostAlloc(&host, 4096, 0)},
        {"cuMemAllocHost", cu.cuMemAllocHost(&host, 4096)},
        {"cuMemFreeHost", cu.cuMemFreeHost(&number)},
        {"cuMemHostRegister", cu.cuMemHostRegister(&number, 4, 0)},
        {"cuMemHostUnregister", cu.cuMemHostUnregister(&number)},
        {"cuMemHostGetDevicePointer", cu.cuMemHostGetDevicePointer(&address, &number, 0)},
        {"cuMemHostGetFlags", cu.cuMemHostGetFlags(&word, &number)},
        {"cuMemGetAddressRange", cu.cuMemGetAddressRange(&address, &size, 4096)},
        {"cuPointerGetAttribute",
         cu.cuPointerGetAttribute(&word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096)},
        {"cuIpcGetMemHandle", cu.cuIpcGetMemHandle(&handle, 4096)},
        {"cuIpcCloseMemHandle", cu.cuIpcCloseMemHandle(4096)},
        {"cuDeviceGetDefaultMemPool", cu.cuDeviceGetDefaultMemPool(&pool, 0)},
        {"cuStreamCreate", cu.cuStreamCreate(&stream, 0)}};
    for (const auto &[name, got] : calls) {
        result(got, CUDA_ERROR_NOT_INITIALIZED, "%s", name);
    }
    fact(cu.cuDriverGetVersion(&number) == CUDA_SUCCESS && number >= 12000,
         "the version is told all the same");
}

namespace {

struct Offer {
    CUipcMemHandle handle;
    size_t size, offset;
    unsigned value;
};

struct Answer {
    CUresult open, again, close;
    bool right, same_address, base_is_address;
};

Answer open_and_look(const Offer &offer, CUstream stream) {
    constexpr unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    Answer answer = {
        CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN, false, false, false};
    CUdeviceptr address = 0, again = 0, base = 0;
    answer.open = cu.cuIpcOpenMemHandle(&address, offer.handle, flags);
    if (answer.open != CUDA_SUCCESS) {
        return answer;
    }
    answer.again = cu.cuIpcOpenMemHandle(&again, offer.handle, flags);
    answer.same_address = again == address;
    answer.right = holds(address, offer.size, offer.value, stream);
    answer.base_is_address =
        cu.cuMemGetAddressRange(&base, nullptr, address + 100) == CUDA_SUCCESS && base == address;
    NEED(fill(address, offer.size, offer.value + 1, stream));
    NEED(cu.cuStreamSynchronize(stream));
    cu.cuIpcCloseMemHandle(again);
    answer.close = cu.cuIpcCloseMemHandle(address);
    return answer;
}

} // namespace

// The importer.
void ipc_child(int requests, int replies) {
    const Primary primary;
    const Stream stream;
    for (Offer offer; take(requests, offer);) {
        if (!put(replies, open_and_look(offer, stream))) {
            return;
        }
    }
}

namespace {

// The handle is of an address inside the block, and names all of it.
void share(size_t size, size_t offset, int requests, int replies) {
    const Stream stream;
    const CUdeviceptr block = allocate(size);
    Offer offer = {};
    Answer answer = {};
    offer.size = size;
    offer.value = static_cast<unsigned>(size + offset);
    NEED(fill(block, size, offer.value, stream));
    NEED(cu.cuStreamSynchronize(stream));
    result(cu.cuIpcGetMemHandle(&offer.handle, block + offset), CUDA_SUCCESS,
           "%zu bytes, at %zu: handle", size, offset);
    if (!put(requests, offer) || !take(replies, answer)) {
        fact(false, "%zu bytes, at %zu: the other process answers", size, offset);
        return;
    }
    result(answer.open, CUDA_SUCCESS, "%zu bytes, at %zu: open", size, offset);
    result(answer.again, CUDA_SUCCESS, "%zu bytes, at %zu: open, the second time", size, offset);
    fact(answer.same_address, "%zu bytes, at %zu: the same address", size, offset);
    fact(answer.base_is_address, "%zu bytes, at %zu: the block starts there", size, offset);
    fact(answer.right, "%zu bytes, at %zu: bytes ok there", size, offset);
    result(answer.close, CUDA_SUCCESS, "%zu bytes, at %zu: close", size, offset);
    fact(holds(block, size, offer.value + 1, stream), "%zu bytes, at %zu: bytes ok here", size,
         offset);
    result(cu.cuMemFree(block), CUDA_SUCCESS, "%zu bytes, at %zu: free", size, offset);
}

void own_handle() {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    const CUdeviceptr block = allocate(2 * mib);
    NEED(cu.cuIpcGetMemHandle(&handle, block));
    fact(cu.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
             CUDA_SUCCESS,
         "the exporter cannot open its own handle");
    NEED(cu.cuMemFree(block));
}

} // namespace

// The exporter. The other process starts before either has called cuInit.
void ipc_case(const std::string &how) {
    int requests[2], replies[2];
    if (pipe(requests) != 0 || pipe(replies) != 0) {
        fact(false, "there are pipes");
        return;
    }
    const pid_t child = start(how, {"ipc-child", std::to_string(requests[0]),
                                    std::to_string(replies[1]), std::to_string(requests[1])});
    close(requests[0]);
    close(replies[1]);
    {
        const Primary primary;
        share(4096, 0, requests[1], replies[0]);
        share(4 * mib, 0, requests[1], replies[0]);
        share(3 * mib, mib, requests[1], replies[0]);
        share(64 * mib, 0, requests[1], replies[0]);
        own_handle();
    }
    close(requests[1]);
    close(replies[0]);
    fact(status_of(child) == 0, "the other process ends well");
}

namespace {

int calls_in_child(CUdeviceptr block) {
    CUdeviceptr address = 0;
    void *host = nullptr;
    size_t free = 0, total = 0;
    return cu.cuMemAlloc(&address, 4096) != CUDA_SUCCESS && cu.cuMemFree(block) != CUDA_SUCCESS &&
                   cu.cuMemAllocAsync(&address, 4096, nullptr) != CUDA_SUCCESS &&
                   cu.cuMemHostAlloc(&host, 4096, 0) != CUDA_SUCCESS &&
                   cu.cuMemGetInfo(&free, &total) != CUDA_SUCCESS && cu.cuInit(0) != CUDA_SUCCESS
               ? 0
               : 1;
}

} // namespace

// A child that is forked after cuInit has no driver, and its calls say so.
void fork_case() {
    const Primary primary;
    const Stream stream;
    const CUdeviceptr block = allocate(mib);
    NEED(fill(block, mib, 141, stream));
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        _exit(calls_in_child(block));
    }
    fact(status_of(child) == 0, "each call of the child is refused");
    fact(holds(block, mib, 141, stream), "the parent's bytes: ok");
    result(cu.cuMemFree(block), CUDA_SUCCESS, "the parent's free");
    NEED(cu.cuMemFree(allocate(mib)));
}

void exec_child() {
    const Primary primary;
    const Stream stream;
    const CUdeviceptr block = allocate(mib);
    NEED(fill(block, mib, 151, stream));
    fact(holds(block, mib, 151, stream), "the new program's bytes: ok");
    result(cu.cuMemFree(block), CUDA_SUCCESS, "its free");
}

void exec_case(const std::string &how) {
    const Primary primary;
    const CUdeviceptr block = allocate(mib);
    fact(status_of(start(how, {"exec-child"})) == 0,
         "a program that is started after cuInit works");
    result(cu.cuMemFree(block), CUDA_SUCCESS, "the first program's free");
}
