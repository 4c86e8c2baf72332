#include "driver.h"

#include "driver/limit.h"
#include "simcuda.h"

#include <emm/emm.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

emm_driver_info driver_info() {
    auto info = sized<emm_driver_info>();
    require(emm_get_driver(&info), "driver");
    return info;
}

Json describe_device(int ordinal) {
    const DriverCalls &driver = driver_calls();
    CUdevice device = 0;
    char name[256] = {};
    size_t memory = 0;
    int major = 0, minor = 0, mapped = 0, shared = 0;
    CUuuid uuid = {};
    auto account = sized<emm_device_account>();
    require(emm_get_device_account(ordinal, &account), "driver");
    EMM_REQUIRE_CUDA(cuDeviceGet, &device, ordinal);
    EMM_REQUIRE_CUDA(cuDeviceGetName, name, sizeof name, device);
    EMM_REQUIRE_CUDA(cuDeviceTotalMem, &memory, device);
    EMM_REQUIRE_CUDA(cuDeviceGetUuid, &uuid, device);
    driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    driver.cuDeviceGetAttribute(&mapped, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                device);
    driver.cuDeviceGetAttribute(
        &shared, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
    return {{"name", name},
            {"uuid", driver::uuid_text(reinterpret_cast<const uint8_t *>(uuid.bytes))},
            {"memory", memory},
            {"limit", account.limit_bytes != 0 ? Json(account.limit_bytes) : Json()},
            {"compute_capability", fmt::format("{}.{}", major, minor)},
            {"virtual_memory_management", mapped != 0},
            {"shared_by_descriptor", shared != 0}};
}

Failure missing_entry(const char *name) {
    return Failure({.code = EMM_E_NO_DRIVER,
                    .stage = "driver",
                    .message = std::string("the driver has no ") + name});
}

} // namespace

emm_function driver_entry(const char *name) {
    const emm_function found = emm_driver_entry(name, EMM_CUDA_SIGNATURES);
    if (!found) {
        throw missing_entry(name);
    }
    return found;
}

const DriverCalls &driver_calls() {
    static const DriverCalls calls = [] {
        driver_info();
        const DriverCalls found;
        if (found.missing()) {
            throw missing_entry(found.missing());
        }
        return found;
    }();
    return calls;
}

void require_cuda(CUresult result, const char *call) {
    if (result == CUDA_SUCCESS) {
        return;
    }
    const char *name = nullptr;
    driver_calls().cuGetErrorName(result, &name);
    throw Failure(
        {.code = EMM_E_DRIVER,
         .stage = "driver",
         .message = fmt::format("{}, called by the tool, failed: {} ({})", call,
                                name ? name : "unknown error", static_cast<int>(result))});
}

bool is_simulated() {
    return driver_info().simulated != 0;
}

Json describe_driver() {
    const emm_driver_info info = driver_info();
    Json devices = Json::array();
    for (uint32_t i = 0; i < info.device_count; i++) {
        devices.push_back(describe_device(static_cast<int>(i)));
    }
    return {
        {"name", info.path},
        {"version", fmt::format("{}.{}", info.cuda_version / 1000, info.cuda_version % 1000 / 10)},
        {"simulated", info.simulated != 0},
        {"devices", devices}};
}

std::string driver_line(const Json &driver) {
    if (!driver.contains("name")) {
        return "none";
    }
    std::string text =
        fmt::format("{}{}, CUDA {}", driver.at("simulated").get<bool>() ? "SIMULATED driver, " : "",
                    driver.at("name").get<std::string>(), driver.at("version").get<std::string>());
    for (const Json &device : driver.at("devices")) {
        text += ", " + device.at("name").get<std::string>();
    }
    return text;
}

Races races_seen() {
    if (!is_simulated()) {
        return {};
    }
    auto counters = sized<simcuda_counters>();
    EMM_DRIVER_ENTRY(simcuda_get_counters)(&counters);
    return {counters.races, EMM_DRIVER_ENTRY(simcuda_last_race)()};
}

} // namespace emm::tool
