#include "driver/driver.h"

#include "driver/account.h"
#include "driver/copies.h"
#include "driver/library.h"
#include "driver/limit.h"
#include "driver/meter.h"
#include "driver/nvml.h"
#include "driver/shared_group.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/text.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace emm::driver {
namespace {

constexpr int oldest_version = 12000;

std::mutex load_mutex;
std::atomic<const Driver *> the_driver{nullptr};
std::atomic<bool> initialized{false};
Library library; // written once, before the_driver is

thread_local CUcontext ended_context = nullptr;
std::atomic<decltype(&::cuCtxGetId)> get_context_id{nullptr};

CUresult CUDAAPI context_id(CUcontext context, unsigned long long *ret_id) {
    return context && context == ended_context ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                               : get_context_id.load()(context, ret_id);
}

emm_function metered(const char *name, int32_t cuda_version) noexcept {
    const emm_function plain = library.entry(name, cuda_version);
    if (plain && std::strcmp(name, "cuCtxGetId") == 0) {
        get_context_id.store(reinterpret_cast<decltype(&::cuCtxGetId)>(plain));
        return reinterpret_cast<emm_function>(&context_id);
    }
    return plain ? meter(name, plain, &entry) : nullptr;
}

emm_status check_version(Driver &driver) {
    const CUresult result = driver.cuDriverGetVersion(&driver.cuda_version);
    if (result != CUDA_SUCCESS) {
        return observe::fail(EMM_E_NO_DRIVER, result, "{}: cuDriverGetVersion failed: error {}",
                             driver.path, static_cast<int>(result));
    }
    if (driver.cuda_version < oldest_version) {
        return observe::fail(EMM_E_NO_DRIVER, 0,
                             "{} is a driver for CUDA {}.{}; expected 12.0 or later", driver.path,
                             driver.cuda_version / 1000, driver.cuda_version % 1000 / 10);
    }
    return EMM_OK;
}

emm_status load_locked() {
    EMM_TRY(open_library(library));
    auto driver = std::make_unique<Driver>(&metered);
    driver->path = observe::one_line(library.path);
    driver->simulated = library.simulated;
    if (const char *name = driver->missing()) {
        return observe::fail(EMM_E_NO_DRIVER, 0, "{} has no {}, which CUDA 12.0 and later have",
                             driver->path, name);
    }
    EMM_TRY(check_version(*driver));
    observe::log(EMM_LOG_INFO, "driver: {}, CUDA {}.{}{}", driver->path,
                 driver->cuda_version / 1000, driver->cuda_version % 1000 / 10,
                 driver->simulated ? ", simulated" : "");
    observe::process_state.fetch_or(observe::process_has_driver);
    the_driver.store(driver.release(), std::memory_order_release);
    return EMM_OK;
}

struct Devices {
    std::vector<LimitedDevice> limited;
    std::vector<DeviceIdentity> identities;
};

// Gives each device its bound, from a text like EMM_LIMIT's. `source` begins a complaint.
emm_status apply_text(const Driver &driver, std::string_view text, std::string_view source,
                      Devices &ret_devices) {
    // Not the metered entry, because that one would report the bound.
    const auto get_total =
        reinterpret_cast<decltype(&::cuDeviceTotalMem)>(entry("cuDeviceTotalMem", oldest_version));
    int count = 0;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuDeviceGetCount, &count));
    for (int ordinal = 0; ordinal < count; ordinal++) {
        LimitedDevice &its = ret_devices.limited.emplace_back();
        DeviceIdentity &identity = ret_devices.identities.emplace_back();
        CUdevice device = 0;
        size_t bytes = 0;
        EMM_TRY(EMM_DRIVER_CALL(driver, cuDeviceGet, &device, ordinal));
        EMM_TRY(identify_device(driver, device, &identity));
        EMM_TRY(check(get_total(&bytes, device), "cuDeviceTotalMem"));
        its.uuid = uuid_text(identity.uuid);
        its.bytes = bytes;
    }
    std::vector<Limit> limits;
    std::string problem = parse_limits(text, limits);
    problem = problem.empty() ? apply_limits(limits, ret_devices.limited) : problem;
    return problem.empty() ? EMM_OK : observe::refuse("{}{}", source, problem);
}

// Makes the process a member of the group, for the devices that it bounds.
emm_status join(std::string_view name, const Devices &devices) {
    std::string path;
    std::string problem = find_group(
        name, {observe::environment("EMM_LIMIT_FOLDER"), observe::environment("XDG_RUNTIME_DIR")},
        path);
    std::vector<GroupDevice> shared;
    std::vector<int32_t> ordinals;
    for (size_t ordinal = 0; ordinal < devices.limited.size(); ordinal++) {
        const LimitedDevice &device = devices.limited[ordinal];
        if (device.bound != 0) {
            GroupDevice &its = shared.emplace_back(GroupDevice{{}, device.bytes, device.bound});
            std::memcpy(&its.uuid, devices.identities[ordinal].uuid, sizeof its.uuid);
            ordinals.push_back(static_cast<int32_t>(ordinal));
        }
    }
    GroupFile &group = observe::immortal<GroupFile>();
    std::vector<std::unique_ptr<Share>> shares;
    problem = problem.empty() ? join_group(group, path, shared, shares) : problem;
    if (!problem.empty()) {
        return observe::refuse("EMM_LIMIT_SHARED (emm run --shared): {}", problem);
    }
    for (size_t i = 0; i < shares.size(); i++) {
        if (const uint64_t bound = shares[i]->bound(); bound != shared[i].bound) {
            observe::log(EMM_LOG_WARN,
                         "EMM_LIMIT: device {}: the group {} keeps the limit {} of the process "
                         "that joined first, not {}",
                         ordinals[i], name, size_text(bound), size_text(shared[i].bound));
        }
        account().set_share(ordinals[i], shares[i].release()); // permanently
    }
    group_of_process.store(&group, std::memory_order_release);
    return EMM_OK;
}

// Includes devices without a bound, because they may get one later.
void count_at_first_copy(int devices) {
    for (int32_t device = 0; device < devices; device++) {
        account().set_share(device, share_of_first_copy(device).release()); // permanently
    }
}

// A device for which `devices` has no bound keeps its old bound.
void set_bounds(const Devices &devices) {
    for (size_t i = 0; i < devices.limited.size(); i++) {
        if (const uint64_t bound = devices.limited[i].bound; bound != 0) {
            account().set_bound(static_cast<int32_t>(i), bound);
        }
    }
}

// Reads from the environment each device's bound, and the group that shares it.
emm_status read_limits(const Driver &driver) {
    const std::string_view text = observe::environment("EMM_LIMIT");
    const std::string_view name = observe::environment("EMM_LIMIT_SHARED");
    if (text.empty() && !name.empty()) {
        return observe::refuse("EMM_LIMIT_SHARED needs EMM_LIMIT, which is not set");
    }
    if (!is_counted()) {
        return EMM_OK;
    }
    int count = 0;
    Devices devices;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuDeviceGetCount, &count));
    if (!text.empty()) {
        EMM_TRY(apply_text(driver, text, "EMM_LIMIT (emm run --limit): ", devices));
    }
    const std::lock_guard lock(limits_mutex);
    static bool are_read = false;
    if (are_read) {
        return EMM_OK;
    }
    if (!is_first_copy()) {
        count_at_first_copy(count);
    } else if (!name.empty()) {
        EMM_TRY(join(name, devices));
    } else {
        set_bounds(devices);
    }
    are_read = true;
    note_limits_read();
    return EMM_OK;
}

} // namespace

emm_status load(const Driver *&ret_driver) {
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    if (const Driver *driver = loaded()) {
        ret_driver = driver;
        return EMM_OK;
    }
    const observe::ProcessCall call;
    if (!observe::register_fork_handlers()) {
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no host memory for a fork handler");
    }
    std::lock_guard lock(load_mutex);
    if (!loaded()) {
        EMM_TRY(load_locked());
    }
    ret_driver = loaded();
    return EMM_OK;
}

emm_status initialize(const Driver *&ret_driver) {
    const Driver *driver = nullptr;
    EMM_TRY(load(driver));
    if (!initialized.load(std::memory_order_acquire)) {
        const CUresult result = driver->cuInit(0);
        if (result != CUDA_SUCCESS) {
            const std::string complaint = library.complaint();
            return observe::fail(EMM_E_NO_DRIVER, result, "{}: cuInit failed: {} ({}){}{}",
                                 driver->path, name_of(result), static_cast<int>(result),
                                 complaint.empty() ? "" : ": ", complaint);
        }
        EMM_TRY(read_limits(*driver));
        initialized.store(true, std::memory_order_release);
    }
    ret_driver = driver;
    return EMM_OK;
}

emm_status change_limits(std::string_view text) {
    const Driver *driver = nullptr;
    EMM_TRY(initialize(driver));
    if (!observe::environment("EMM_LIMIT_SHARED").empty()) {
        return observe::refuse(
            "it shares the limit of a group; change that by the group's name: emm limit {} SIZE",
            observe::environment("EMM_LIMIT_SHARED"));
    }
    if (!is_counted()) {
        return observe::refuse(
            "it has no limit: it was started without EMM_LIMIT, so its memory is not counted");
    }
    Devices devices;
    EMM_TRY(apply_text(*driver, text, "", devices));
    set_bounds(devices);
    return EMM_OK;
}

std::string above_limit_text() {
    const Driver *const driver = loaded();
    int count = 0;
    for (int i = driver && driver->cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0; i-- > 0;) {
        const Account::Figures its = account().figures(i);
        if (its.bound != 0 && its.used > its.bound) {
            return above_limit_text(its.used, "device " + std::to_string(i));
        }
    }
    return "";
}

const Driver *loaded() noexcept {
    return the_driver.load(std::memory_order_acquire);
}

emm_function entry(const char *name, int32_t cuda_version) noexcept {
    try {
        const Driver *driver = nullptr;
        return load(driver) == EMM_OK ? library.entry(name, cuda_version) : nullptr;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

emm_function metered_entry(const char *name, int32_t cuda_version) noexcept {
    try {
        const Driver *driver = nullptr;
        return load(driver) == EMM_OK ? metered(name, cuda_version) : nullptr;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

EndedContext::EndedContext(CUcontext context) noexcept
    : before_(std::exchange(ended_context, context)) {}

EndedContext::~EndedContext() {
    ended_context = before_;
}

const char *name_of(CUresult result) noexcept {
    const char *name = nullptr;
    const Driver *driver = loaded();
    if (!driver || driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) {
        name = "CUDA error";
    }
    return name;
}

CUresult result_of(int32_t number) noexcept {
    return number >= CUDA_SUCCESS && number <= CUDA_ERROR_UNKNOWN ? static_cast<CUresult>(number)
                                                                  : CUDA_ERROR_UNKNOWN;
}

emm_status fail(CUresult result, const char *call) noexcept {
    const char *text = nullptr;
    const Driver *driver = loaded();
    if (!driver || driver->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) {
        text = "no text";
    }
    return observe::fail(cuda::status_of(result), result, "{} failed: {} ({}), {}", call,
                         name_of(result), static_cast<int>(result), text);
}

} // namespace emm::driver
