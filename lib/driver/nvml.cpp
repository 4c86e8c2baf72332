#include "driver/nvml.h"

#include "driver/limit.h"
#include "observe/descriptors.h"
#include "observe/program_code.h"

#include <atomic>
#include <dlfcn.h>
#include <fmt/format.h>
#include <mutex>

namespace emm::driver {
namespace {

using Device = struct nvmlDevice_st *;

// nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v2 and _v3.
struct ProcessInfo {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

constexpr int nvml_success = 0, nvml_too_small = 7;
constexpr unsigned long long not_available = ~0ull;

struct Nvml {
    int (*init)() = nullptr;
    int (*device_by_uuid)(const char *, Device *) = nullptr;
    int (*processes)(Device, unsigned *, ProcessInfo *) = nullptr;
    const char *(*error_text)(int) = nullptr;
};

template <class Function> bool find_nvml(void *library, const char *name, Function &ret_function) {
    ret_function = reinterpret_cast<Function>(dlsym(library, name));
    return ret_function != nullptr;
}

// Returns "" or the reason why NVML cannot be used.
std::string open_nvml(Nvml &ret_nvml) {
    void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return "NVML (libnvidia-ml.so.1) is not installed";
    }
    if (!find_nvml(library, "nvmlInit_v2", ret_nvml.init) ||
        !find_nvml(library, "nvmlDeviceGetHandleByUUID", ret_nvml.device_by_uuid) ||
        !find_nvml(library, "nvmlErrorString", ret_nvml.error_text) ||
        (!find_nvml(library, "nvmlDeviceGetComputeRunningProcesses_v3", ret_nvml.processes) &&
         !find_nvml(library, "nvmlDeviceGetComputeRunningProcesses_v2", ret_nvml.processes))) {
        return "NVML is too old: it has no nvmlDeviceGetComputeRunningProcesses_v2";
    }
    const int result = ret_nvml.init();
    return result == nvml_success
               ? ""
               : fmt::format("NVML failed: nvmlInit: {}", ret_nvml.error_text(result));
}

std::string program_of(unsigned process) {
    char name[64];
    const std::string_view text =
        observe::read_start(fmt::format("/proc/{}/comm", process).c_str(), name, sizeof name);
    return std::string(text.substr(0, text.find('\n')));
}

bool ask(const Nvml &nvml, const uint8_t *uuid, std::vector<observe::DeviceProcess> &ret_processes,
         std::string &ret_reason) {
    Device device = nullptr;
    int result = nvml.device_by_uuid(uuid_text(uuid).c_str(), &device);
    std::vector<ProcessInfo> found(64);
    auto count = static_cast<unsigned>(found.size());
    if (result == nvml_success) {
        result = nvml.processes(device, &count, found.data());
    }
    if (result == nvml_too_small) { // `count` is the number of processes now; more may start
        found.resize(size_t(count) + 64);
        count = static_cast<unsigned>(found.size());
        result = nvml.processes(device, &count, found.data());
    }
    if (result != nvml_success) {
        ret_reason = fmt::format("NVML failed: {}", nvml.error_text(result));
        return false;
    }
    for (unsigned i = 0; i < count && i < found.size(); i++) {
        const bool is_known = found[i].used_bytes != not_available; // containers may hide the size
        ret_processes.push_back(
            {found[i].pid, program_of(found[i].pid), is_known ? found[i].used_bytes : 0});
    }
    return true;
}

} // namespace

// The dynamic linker's lock, which a thread may have whose call emm pause holds, is needed to open
// NVML. So the thread of emm pause and emm resume does not open it.
bool device_processes(const uint8_t *uuid, std::vector<observe::DeviceProcess> &ret_processes,
                      std::string &ret_reason) {
    static std::atomic<bool> was_opened{false};
    if (observe::NoProgramCode::is_in_force() && !was_opened) {
        ret_reason = "the program sleeps by emm pause, and NVML was not open before";
        return false;
    }
    static std::mutex mutex;
    static Nvml nvml;
    const std::lock_guard lock(mutex);
    static const auto *const failure = new std::string(open_nvml(nvml));
    was_opened = true;
    ret_reason = *failure;
    return failure->empty() && ask(nvml, uuid, ret_processes, ret_reason);
}

} // namespace emm::driver
