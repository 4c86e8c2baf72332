#include "world.h"

#include "../parts/sized.h"
#include "fault.h"

#include <cstdio>
#include <cstdlib>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace faults {
namespace {

struct Export {
    emm_status status = EMM_OK;
    emm_ipc_handle handle = {};
};

// The other process: exports memory and waits until it is no longer needed.
[[noreturn]] void export_until_told(int socket) {
    open_driver();
    emm_context *context = nullptr;
    emm_memory *memory = nullptr;
    Export made;
    must(emm_context_for_device(0, &context) == EMM_OK, "an exporting context");
    must(emm_memory_alloc(context, size_t(3) << 20, EMM_STREAM_LEGACY, &memory) == EMM_OK,
         "memory to export");
    made.status = emm_memory_export(memory, &made.handle);
    must(write(socket, &made, sizeof made) == sizeof made, "telling what is exported");
    char end;
    while (read(socket, &end, 1) > 0) {
    }
    _exit(0);
}

} // namespace

void stop(const std::string &why) {
    std::fprintf(stderr, "%s: %s\n", why.c_str(), emm_last_error()->text);
    std::_Exit(2);
}

void must(bool done, const char *what) {
    if (!done) {
        stop(std::string("the test itself could not be done: ") + what);
    }
}

Holdings holdings() {
    const simcuda_counters found = counters();
    return {found.device_bytes, found.device_blocks, found.host_bytes, found.host_blocks};
}

std::string text_of(const Holdings &holdings) {
    return std::to_string(holdings.device_bytes) + " bytes in " +
           std::to_string(holdings.device_blocks) + " blocks on the device, " +
           std::to_string(holdings.host_bytes) + " in " + std::to_string(holdings.host_blocks) +
           " on the host";
}

int64_t uncounted_bytes() {
    uint64_t counted = 0;
    auto account = sized<emm_device_account>();
    for (int device = 0; emm_get_device_account(device, &account) == EMM_OK; device++) {
        if (account.limit_bytes == 0) {
            return 0;
        }
        counted += account.used_bytes;
    }
    return int64_t(holdings().device_bytes - counted);
}

uint64_t races() {
    return counters().races;
}

World::World(int device) {
    using Create = CUresult (*)(CUcontext *, unsigned, CUdevice);
    must(CU(cuInit)(0) == CUDA_SUCCESS, "cuInit");
    // The contexts whose pop was made to fail.
    CUcontext left = nullptr;
    while (CU(cuCtxPopCurrent)(&left) == CUDA_SUCCESS) {
    }
    const auto create = reinterpret_cast<Create>(emm_driver_entry("cuCtxCreate", 3020));
    must(create(&cuda_, 0, device) == CUDA_SUCCESS, "a context");
    must(emm_context_from(cuda_, &emm_) == EMM_OK, "its manager");
    must(CU(cuStreamCreate)(&known_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "a stream");
    must(CU(cuStreamCreate)(&other_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "another stream");
    must(emm_stream_register(emm_, known_) == EMM_OK, "registering a stream");
}

void World::retire() {
    retired_ = true;
    must(emm_context_retire(emm_) == EMM_OK, "retiring the context");
}

World::~World() {
    if (!retired_) {
        retire();
    }
    CU(cuCtxDestroy)(cuda_);
}

Offer::Offer() {
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a socket");
    exporter_ = fork();
    if (exporter_ == 0) {
        close(ends[0]);
        export_until_told(ends[1]);
    }
    close(ends[1]);
    pipe_ = ends[0];
    Export made;
    must(read(pipe_, &made, sizeof made) == sizeof made, "another process that exports");
    status_ = made.status;
    handle_ = made.handle;
}

Offer::~Offer() {
    close(pipe_);
    waitpid(exporter_, nullptr, 0);
}

} // namespace faults
