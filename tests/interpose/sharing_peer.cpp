#include "sharing_peer.h"

#include "objects.h"

#include <simcuda.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <map>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace sharing {
namespace {

struct Memory {
    CUdeviceptr address = 0;
    size_t size = 0;
};

std::map<unsigned, Memory> slots;
CUstream stream = nullptr;
int device = 0;

void begin_context() {
    CUcontext context = nullptr;
    NEED(cu.cuDevicePrimaryCtxRetain(&context, device));
    NEED(cu.cuCtxSetCurrent(context));
    NEED(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

CUresult reset_context() {
    NEED(cu.cuStreamDestroy(stream));
    NEED(cu.cuCtxSetCurrent(nullptr));
    NEED(cu.cuDevicePrimaryCtxReset(device));
    NEED(cu.cuDevicePrimaryCtxRelease(device));
    slots.clear();
    begin_context();
    return CUDA_SUCCESS;
}

CUresult allocate(const Request &request) {
    Memory &made = slots[request.slot];
    made.size = request.size;
    switch (request.how) {
    case How::ordered:
        return cu.cuMemAllocAsync(&made.address, request.size, stream);
    case How::managed:
        return cu.cuMemAllocManaged(&made.address, request.size, CU_MEM_ATTACH_GLOBAL);
    default:
        return cu.cuMemAlloc(&made.address, request.size);
    }
}

CUresult free_slot(const Request &request) {
    const CUdeviceptr address = slots.at(request.slot).address;
    slots.erase(request.slot);
    return request.how == How::ordered ? cu.cuMemFreeAsync(address, stream) : cu.cuMemFree(address);
}

CUresult open_slot(const Request &request, Answer &answer) {
    const CUresult result = cu.cuIpcOpenMemHandle(&answer.address, request.handle, request.value);
    if (result == CUDA_SUCCESS) {
        slots[request.slot] = {answer.address, request.size};
    }
    return result;
}

CUresult close_slot(const Request &request) {
    const CUdeviceptr address = slots.at(request.slot).address;
    slots.erase(request.slot);
    return cu.cuIpcCloseMemHandle(address);
}

CUresult tell_range(const Memory &memory, size_t offset, Answer &answer) {
    CUdeviceptr start = 0;
    size_t size = 0;
    NEED(cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                  memory.address + offset));
    NEED(cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory.address + offset));
    NEED(cu.cuPointerGetAttribute(&answer.id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                  memory.address + offset));
    const CUresult result =
        cu.cuMemGetAddressRange(&answer.address, &answer.size, memory.address + offset);
    answer.matches =
        answer.address == memory.address && start == answer.address && size == answer.size;
    return result;
}

// Asks as programs do that choose between ways to share.
bool is_said_to_be_shareable(CUdeviceptr address) {
    int alone = 0, among = 0;
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
    void *values[] = {&among};
    NEED(cu.cuPointerGetAttribute(&alone, attribute, address));
    NEED(cu.cuPointerGetAttributes(1, &attribute, values, address));
    return alone == 1 && among == 1;
}

// Whether `work` says yes in each of several threads.
template <class Work> bool in_threads(Work work) {
    CUcontext context = nullptr;
    NEED(cu.cuCtxGetCurrent(&context));
    std::atomic<bool> all{true};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            NEED(cu.cuCtxSetCurrent(context));
            if (!work()) {
                all = false;
            }
        });
    }
    for (std::thread &each : threads) {
        each.join();
    }
    return all;
}

bool get_handles_at_once(CUdeviceptr address) {
    CUipcMemHandle handles[4] = {};
    std::atomic<int> next{0};
    const bool got =
        in_threads([&] { return cu.cuIpcGetMemHandle(&handles[next++], address) == CUDA_SUCCESS; });
    return got && std::all_of(handles, handles + 4, [&](const CUipcMemHandle &each) {
               return std::memcmp(&each, &handles[0], sizeof each) == 0;
           });
}

bool open_and_close_at_once(const CUipcMemHandle &handle) {
    return in_threads([&] {
        bool good = true;
        for (int i = 0; i < 100 && good; ++i) {
            CUdeviceptr address = 0, start = 0;
            good = cu.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
                       CUDA_SUCCESS &&
                   cu.cuMemGetAddressRange(&start, nullptr, address + 100) == CUDA_SUCCESS &&
                   start == address && cu.cuIpcCloseMemHandle(address) == CUDA_SUCCESS;
        }
        return good;
    });
}

uint64_t count_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

bool reaches(unsigned other) {
    int possible = 0; // the attribute may be unknown
    return cu.cuDeviceCanAccessPeer(&possible, device, int(other)) == CUDA_SUCCESS && possible;
}

// Work of another device of this process, in its context.
template <class Work> void on_device(size_t other, Work work) {
    CUcontext own = nullptr, context = nullptr;
    NEED(cu.cuCtxGetCurrent(&own));
    NEED(cu.cuDevicePrimaryCtxRetain(&context, CUdevice(other)));
    NEED(cu.cuCtxSetCurrent(context));
    work(own);
    NEED(cu.cuCtxSynchronize());
    NEED(cu.cuCtxSetCurrent(own));
}

// The simulated driver lets copies and fills reach all memory, and kernels the memory that they may
// use.
void fill_from_here(const Memory &memory, unsigned value) {
    if (const auto launch = entry_of<decltype(simcuda_launch)>("simcuda_launch")) {
        const simcuda_range range = {memory.address, memory.size, 1, 0};
        NEED(CUresult(launch(nullptr, nullptr, nullptr, &range, 1)));
    }
    NEED(::fill(memory.address, memory.size, value, nullptr));
}

// The serving thread closes a connection soon after the importer has.
uint64_t settled_descriptors() {
    uint64_t least = count_descriptors();
    for (int i = 0; i < 20; ++i) {
        usleep(1000);
        least = std::min(least, count_descriptors());
    }
    return least;
}

Answer do_as_told(const Request &request) {
    Answer answer;
    switch (request.what) {
    case 'a':
        answer.result = allocate(request);
        break;
    case 'x':
        answer.result = free_slot(request);
        break;
    case 'o':
        answer.result = open_slot(request, answer);
        break;
    case 'c':
        answer.result = close_slot(request);
        break;
    case 'd':
        answer.id = settled_descriptors();
        break;
    case 'G':
        answer.matches = get_handles_at_once(slots.at(request.slot).address);
        break;
    case 'O':
        answer.matches = open_and_close_at_once(request.handle);
        break;
    case 'p':
        answer.matches = reaches(request.value);
        break;
    case 'e':
        on_device(request.size, [](CUcontext own) { NEED(cu.cuCtxEnablePeerAccess(own, 0)); });
        break;
    case 'u':
        on_device(request.size,
                  [&](CUcontext) { fill_from_here(slots.at(request.slot), request.value); });
        break;
    case 'z':
        answer.result = reset_context();
        break;
    default: {
        const Memory memory = slots.at(request.slot);
        if (request.what == 's') {
            answer.matches = is_said_to_be_shareable(memory.address);
        } else if (request.what == 'g') {
            answer.matches = is_said_to_be_shareable(memory.address + request.size);
            answer.result = cu.cuIpcGetMemHandle(&answer.handle, memory.address + request.size);
        } else if (request.what == 'r') {
            answer.result = tell_range(memory, request.size, answer);
        } else if (request.what == 'h') {
            answer.matches = ::holds(memory.address, memory.size, request.value, stream);
        } else {
            NEED(::fill(memory.address, memory.size, request.value, stream));
            NEED(cu.cuStreamSynchronize(stream));
        }
    }
    }
    return answer;
}

} // namespace

int be_peer(int socket, int its_device) {
    device = its_device;
    const std::string missing = find_driver("dlsym");
    if (!missing.empty()) {
        std::fprintf(stderr, "%s\n", missing.c_str());
        return 1;
    }
    NEED(cu.cuInit(0));
    begin_context();
    Request request;
    while (recv(socket, &request, sizeof request, 0) == sizeof request) {
        const Answer answer = do_as_told(request);
        if (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) {
            return 1;
        }
    }
    return 0;
}

Peer::Peer(std::vector<std::string> environment, int its_device) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
        fcntl(ends[1], F_SETFD, 0) != 0) {
        std::perror("socketpair");
        std::_Exit(1);
    }
    for (char **each = environ; *each; ++each) {
        const std::string name(*each, std::strcspn(*each, "=") + 1);
        const bool is_replaced = name == "LD_LIBRARY_PATH=" || name == "LD_PRELOAD=";
        if (!is_replaced) {
            environment.push_back(*each);
        }
    }
    std::vector<char *> variables;
    for (std::string &each : environment) {
        variables.push_back(each.data());
    }
    variables.push_back(nullptr);
    std::string number = std::to_string(ends[1]), ordinal = std::to_string(its_device);
    char program[] = "sharing", role[] = "peer";
    char *arguments[] = {program, role, number.data(), ordinal.data(), nullptr};
    if (posix_spawn(&process_, "/proc/self/exe", nullptr, nullptr, arguments, variables.data()) !=
        0) {
        std::perror("posix_spawn");
        std::_Exit(1);
    }
    ::close(ends[1]);
    socket_ = ends[0];
}

Peer::~Peer() {
    ::close(socket_);
    int status = 0;
    waitpid(process_, &status, 0);
    if (status != 0) {
        std::fprintf(stderr, "a process ended with status %#x\n", status);
        std::_Exit(1);
    }
}

Answer Peer::ask(const Request &request) const {
    Answer answer;
    pollfd waiting = {socket_, POLLIN, 0};
    if (send(socket_, &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
        poll(&waiting, 1, 60000) != 1 ||
        recv(socket_, &answer, sizeof answer, 0) != sizeof answer) {
        int status = 0;
        waitpid(process_, &status, WNOHANG);
        std::fprintf(stderr, "a process does not do '%c': its status is %#x\n", request.what,
                     status);
        std::_Exit(1);
    }
    return answer;
}

} // namespace sharing
