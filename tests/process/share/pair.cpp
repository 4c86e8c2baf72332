#include "pair.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <cuda.h>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <map>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace share {
namespace {

template <class Function> Function entry(const char *name, int32_t version = 12000) {
    return reinterpret_cast<Function>(emm_driver_entry(name, version));
}

void make_current(emm_context *context) {
    auto info = sized<emm_context_info>();
    CHECK(emm_context_get_info(context, &info) == EMM_OK);
    CHECK(entry<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent")(info.cuda_context) == CUDA_SUCCESS);
}

void wait_for_all() {
    CHECK(entry<CUresult (*)()>("cuCtxSynchronize")() == CUDA_SUCCESS);
}

constexpr size_t sample = size_t(1) << 20;

std::vector<size_t> samples_of(size_t size) {
    if (size <= 64 * sample) {
        return {};
    }
    return {0, size / 2, size - sample};
}

uint64_t entries_of(const char *path) {
    return std::distance(std::filesystem::directory_iterator(path), {});
}

// --- the peer

struct Slot {
    emm_context *context;
    emm_memory *memory;
    size_t size;
};
std::map<uint32_t, Slot> slots;

Answer open_slot(int device, const Request &request) {
    Answer answer;
    emm_context *context = context_on(device, request.which);
    emm_memory *memory = nullptr;
    emm_ipc_handle handle = request.handle;
    if (request.what == 'N') {
        answer.status = emm_ipc_name_to_handle(&request.name, &handle);
    }
    if (answer.status == EMM_OK) {
        answer.status = emm_memory_open_ipc(context, &handle, &memory);
    }
    if (answer.status < EMM_OK) {
        std::snprintf(answer.text, sizeof answer.text, "%s", emm_last_error()->text);
        return answer;
    }
    slots[request.slot] = {context, memory, static_cast<size_t>(handle.size)};
    answer.kind = kind_of(memory);
    answer.number = address_of(memory);
    return answer;
}

void add_openings(const char *name, uint64_t calls, void *sum) {
    for (const char *opening :
         {"cuIpcOpenMemHandle", "cuMemImportFromShareableHandle", "cuMemPoolImportPointer"}) {
        if (std::strcmp(name, opening) == 0) {
            *static_cast<uint64_t *>(sum) += calls;
        }
    }
}

// Closes memory with pending work. False: a capture meanwhile has become invalid.
bool close_beside_a_capture(const Slot &slot) {
    const auto create = entry<decltype(&cuStreamCreate)>("cuStreamCreate");
    const auto set =
        entry<CUresult (*)(CUdeviceptr, unsigned char, size_t, CUstream)>("cuMemsetD8Async");
    const auto begin = entry<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture");
    const auto end = entry<decltype(&cuStreamEndCapture)>("cuStreamEndCapture");
    CUstream captured = nullptr, busy = nullptr;
    CUgraph graph = nullptr;
    make_current(slot.context);
    CHECK(create(&captured, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(create(&busy, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(set(address_of(slot.memory), 5, slot.size, busy) == CUDA_SUCCESS);
    CHECK(begin(captured, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(emm_memory_release(slot.memory) == EMM_OK);
    return end(captured, &graph) == CUDA_SUCCESS;
}

Answer do_as_told(int device, const Request &request) {
    Answer answer;
    if (request.what == 'o' || request.what == 'N') {
        return open_slot(device, request);
    }
    if (request.what == 'n') {
        CHECK(emm_foreach_driver_call(&add_openings, &answer.number) == EMM_OK);
        return answer;
    }
    if (request.what == 'd') {
        auto info = sized<emm_context_info>();
        CHECK(emm_context_get_info(context_on(device, request.which), &info) == EMM_OK);
        CHECK(entry<decltype(&cuCtxDestroy)>("cuCtxDestroy")(info.cuda_context) == CUDA_SUCCESS);
        return answer;
    }
    if (request.what == 's') {
        answer.number = open_descriptors();
        answer.threads = live_threads();
        return answer;
    }
    const Slot slot = slots.at(request.slot);
    const emm_deviceptr address = address_of(slot.memory);
    if (request.what == 'h') {
        answer.number = holds(slot.context, address, slot.size, request.value);
    } else if (request.what == 'f') {
        fill(slot.context, address, slot.size, request.value);
    } else if (request.what == 'k') {
        answer.number = close_beside_a_capture(slot);
        slots.erase(request.slot);
    } else {
        CHECK(emm_memory_release(slot.memory) == EMM_OK);
        slots.erase(request.slot);
    }
    return answer;
}

} // namespace

emm_context *context_on(int32_t device, uint32_t which) {
    static std::map<std::pair<int32_t, uint32_t>, emm_context *> known;
    emm_context *&context = known[{device, which}];
    if (context) {
        return context;
    }
    CHECK(emm_context_for_device(device, &context) == EMM_OK);
    if (which != 0) {
        const auto create =
            entry<CUresult (*)(CUcontext *, unsigned, CUdevice)>("cuCtxCreate", 3020);
        CUcontext more = nullptr;
        CHECK(create(&more, 0, device) == CUDA_SUCCESS);
        CHECK(emm_context_from(more, &context) == EMM_OK);
    }
    return context;
}

emm_deviceptr address_of(emm_memory *memory) {
    auto info = sized<emm_memory_info>();
    CHECK(emm_memory_get_info(memory, &info) == EMM_OK);
    return info.ptr;
}

uint32_t kind_of(emm_memory *memory) {
    auto info = sized<emm_memory_info>();
    CHECK(emm_memory_get_info(memory, &info) == EMM_OK);
    return info.kind;
}

void fill(emm_context *context, emm_deviceptr address, size_t size, int value) {
    const auto set = entry<CUresult (*)(CUdeviceptr, unsigned char, size_t)>("cuMemsetD8");
    const auto byte = static_cast<unsigned char>(value);
    make_current(context);
    const std::vector<size_t> samples = samples_of(size);
    for (const size_t at : samples) {
        CHECK(set(address + at, byte, sample) == CUDA_SUCCESS);
    }
    CHECK(!samples.empty() || set(address, byte, size) == CUDA_SUCCESS);
    wait_for_all();
}

bool holds(emm_context *context, emm_deviceptr address, size_t size, int value) {
    const auto copy = entry<CUresult (*)(void *, CUdeviceptr, size_t)>("cuMemcpyDtoH");
    make_current(context);
    const std::vector<size_t> samples = samples_of(size);
    std::string bytes(samples.empty() ? size : samples.size() * sample, 0);
    for (size_t i = 0; i < samples.size(); ++i) {
        CHECK(copy(&bytes[i * sample], address + samples[i], sample) == CUDA_SUCCESS);
    }
    CHECK(!samples.empty() || copy(bytes.data(), address, size) == CUDA_SUCCESS);
    return bytes.find_first_not_of(static_cast<char>(value)) == bytes.npos;
}

uint64_t open_descriptors() {
    return entries_of("/proc/self/fd") - 1; // the folder itself
}

uint64_t live_threads() {
    return entries_of("/proc/self/task");
}

uint64_t live_bytes(emm_context *context) {
    auto stats = sized<emm_stats>();
    CHECK(emm_get_stats(context, &stats) == EMM_OK);
    return stats.live_bytes;
}

uint32_t checksum_of(const emm_ipc_handle &handle) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(&handle);
    uint32_t sum = ~0u;
    for (size_t i = 0; i < offsetof(emm_ipc_handle, checksum); ++i) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; ++bit) {
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
        }
    }
    return ~sum;
}

bool is_simulated() {
    return emm_driver_entry("simcuda_call_count", 12000) != nullptr;
}

int device_count() {
    int count = 0;
    context_on(0); // loads the driver
    CHECK(entry<decltype(&cuDeviceGetCount)>("cuDeviceGetCount")(&count) == CUDA_SUCCESS);
    return count;
}

bool can_reach(int from, int to) {
    int possible = 0;
    CHECK(entry<decltype(&cuDeviceCanAccessPeer)>("cuDeviceCanAccessPeer")(&possible, from, to) ==
          CUDA_SUCCESS);
    return possible != 0;
}

int be_peer(int socket, int device) {
    if (std::getenv("EMM_TEST_OWN_PROC")) { // of other process ids, as the driver reads its own
        CHECK(unshare(CLONE_NEWNS) == 0);
        // "/" of a chroot is no mount.
        CHECK(mount("none", "/proc", nullptr, MS_PRIVATE, nullptr) == 0);
        CHECK(mount("proc", "/proc", "proc", 0, nullptr) == 0);
    }
    Request request;
    while (recv(socket, &request, sizeof request, 0) == sizeof request) {
        const Answer answer = do_as_told(device, request);
        CHECK(send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer);
    }
    for (const auto &[number, slot] : slots) {
        CHECK(emm_memory_release(slot.memory) == EMM_OK);
    }
    return 0;
}

Peer::Peer(int device, std::vector<std::string> environment) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(fcntl(ends[1], F_SETFD, 0) == 0);
    std::vector<char *> variables;
    for (std::string &each : environment) {
        variables.push_back(each.data());
    }
    for (char **each = environ; *each; ++each) {
        const std::string name(*each, std::strcspn(*each, "=") + 1);
        const bool replaced = std::any_of(environment.begin(), environment.end(),
                                          [&](const auto &own) { return own.rfind(name, 0) == 0; });
        if (!replaced) {
            variables.push_back(*each);
        }
    }
    variables.push_back(nullptr);
    std::string number = std::to_string(ends[1]), ordinal = std::to_string(device);
    char program[] = "share", role[] = "peer";
    char *arguments[] = {program, role, number.data(), ordinal.data(), nullptr};
    CHECK(posix_spawn(&process_, "/proc/self/exe", nullptr, nullptr, arguments, variables.data()) ==
          0);
    ::close(ends[1]);
    socket_ = ends[0];
}

Peer::~Peer() {
    end();
}

void Peer::end() {
    if (socket_ < 0) {
        return;
    }
    ::close(std::exchange(socket_, -1));
    int status = 0;
    waitpid(process_, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Answer Peer::ask(const Request &request) const {
    Answer answer;
    pollfd waiting = {socket_, POLLIN, 0};
    CHECK(send(socket_, &request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    CHECK(poll(&waiting, 1, 60000) == 1);
    if (recv(socket_, &answer, sizeof answer, 0) != sizeof answer) {
        int status = 0;
        waitpid(process_, &status, 0);
        std::fprintf(stderr,
                     "%d: asked to '%c', the other process ended: exit status %d, signal %d\n",
                     getpid(), request.what, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                     WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        std::_Exit(1);
    }
    return answer;
}

} // namespace share
