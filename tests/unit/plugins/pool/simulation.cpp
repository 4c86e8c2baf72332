#include "simulation.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <stdexcept>

namespace pool_test {

std::atomic<void (*)()> before_mem_alloc{nullptr}, before_mem_create{nullptr},
    before_graph_retain{nullptr};
std::atomic<void (*)()> before_giving_back{nullptr}, before_waiting{nullptr},
    before_set_access{nullptr};
std::atomic<size_t> most_addresses{SIZE_MAX};
std::atomic<bool> loses_waits{false};

namespace {

void *open(const char *variable) {
    const char *path = getenv(variable);
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) {
        throw std::runtime_error(std::string(variable) + ": " + (path ? dlerror() : "not set"));
    }
    return library;
}

void *driver_library() {
    static void *const library = open("EMM_TEST_DRIVER");
    return library;
}

using GetProcAddress = CUresult (*)(const char *, void **, int, cuuint64_t, void *);

emm_function found_entry(const char *name, int32_t version) {
    static const auto get =
        reinterpret_cast<GetProcAddress>(dlsym(driver_library(), "cuGetProcAddress_v2"));
    void *entry = nullptr;
    return get(name, &entry, version, 0, nullptr) == CUDA_SUCCESS
               ? reinterpret_cast<emm_function>(entry)
               : nullptr;
}

CUresult CUDAAPI mem_alloc(CUdeviceptr *ret_ptr, size_t size) {
    static const auto real =
        reinterpret_cast<decltype(&::cuMemAlloc)>(found_entry("cuMemAlloc", 12000));
    if (void (*const before)() = before_mem_alloc) {
        before();
    }
    return real(ret_ptr, size);
}

CUresult CUDAAPI mem_create(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *properties, unsigned long long flags) {
    static const auto real =
        reinterpret_cast<decltype(&::cuMemCreate)>(found_entry("cuMemCreate", 12000));
    if (void (*const before)() = before_mem_create) {
        before();
    }
    return real(handle, size, properties, flags);
}

CUresult CUDAAPI address_reserve(CUdeviceptr *ret_base, size_t size, size_t alignment,
                                 CUdeviceptr wanted, unsigned long long flags) {
    static const auto real = reinterpret_cast<decltype(&::cuMemAddressReserve)>(
        found_entry("cuMemAddressReserve", 12000));
    return size <= most_addresses ? real(ret_base, size, alignment, wanted, flags)
                                  : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult CUDAAPI graph_retain(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
    static const auto real = reinterpret_cast<decltype(&::cuGraphRetainUserObject)>(
        found_entry("cuGraphRetainUserObject", 12000));
    if (void (*const before)() = before_graph_retain) {
        before();
    }
    return real(graph, object, count, flags);
}

CUresult CUDAAPI stream_wait_event(CUstream stream, CUevent event, unsigned flags) {
    static const auto real =
        reinterpret_cast<decltype(&::cuStreamWaitEvent)>(found_entry("cuStreamWaitEvent", 12000));
    return loses_waits ? CUDA_SUCCESS : real(stream, event, flags);
}

template <std::atomic<void (*)()> &hook, class... Arguments> struct Hooked {
    static inline CUresult(CUDAAPI *real)(Arguments...) = nullptr;
    static CUresult CUDAAPI call(Arguments... arguments) {
        if (void (*const before)() = hook) {
            before();
        }
        return real(arguments...);
    }
    static emm_function entry(const char *name) {
        real = reinterpret_cast<decltype(real)>(found_entry(name, 12000));
        return reinterpret_cast<emm_function>(&call);
    }
};

emm_function driver_entry(const char *name, int32_t version) {
    if (strcmp(name, "cuGraphRetainUserObject") == 0) {
        return reinterpret_cast<emm_function>(&graph_retain);
    }
    if (strcmp(name, "cuStreamWaitEvent") == 0) {
        return reinterpret_cast<emm_function>(&stream_wait_event);
    }
    if (strcmp(name, "cuMemFree") == 0) {
        return Hooked<before_giving_back, CUdeviceptr>::entry(name);
    }
    if (strcmp(name, "cuMemFreeHost") == 0) {
        return Hooked<before_giving_back, void *>::entry(name);
    }
    if (strcmp(name, "cuMemUnmap") == 0) {
        return Hooked<before_giving_back, CUdeviceptr, size_t>::entry(name);
    }
    if (strcmp(name, "cuMemSetAccess") == 0) {
        return Hooked<before_set_access, CUdeviceptr, size_t, const CUmemAccessDesc *,
                      size_t>::entry(name);
    }
    if (strcmp(name, "cuEventSynchronize") == 0) {
        return Hooked<before_waiting, CUevent>::entry(name);
    }
    if (strcmp(name, "cuMemAlloc") == 0) {
        return reinterpret_cast<emm_function>(&mem_alloc);
    }
    if (strcmp(name, "cuMemAddressReserve") == 0) {
        return reinterpret_cast<emm_function>(&address_reserve);
    }
    if (strcmp(name, "cuMemCreate") == 0) {
        return reinterpret_cast<emm_function>(&mem_create);
    }
    return found_entry(name, version);
}

thread_local Heard heard;

int simulations = 0;
uint64_t forgiven_races = 0;
uint64_t objects_before = 0; // the first of them

emm_status hear(emm_status code, int32_t driver_result, const char *text) {
    heard = {code, driver_result, text};
    return code;
}

} // namespace

template <class Function> void Cuda::find(Function &function, const char *name, int version) {
    function = reinterpret_cast<Function>(driver_entry(name, version));
    if (!function) {
        throw std::runtime_error(std::string("the driver has no ") + name);
    }
}

Cuda::Cuda() {
#define FIND(name) find(name, #name);
    FIND(cuInit)
    FIND(cuDevicePrimaryCtxRetain)
    FIND(cuCtxDestroy)
    FIND(cuCtxGetId)
    FIND(cuCtxPushCurrent)
    FIND(cuCtxPopCurrent)
    FIND(cuCtxSetCurrent)
    FIND(cuCtxSynchronize)
    FIND(cuCtxEnablePeerAccess)
    FIND(cuCtxDisablePeerAccess)
    FIND(cuStreamCreate)
    FIND(cuStreamDestroy)
    FIND(cuStreamSynchronize)
    FIND(cuStreamWaitEvent)
    FIND(cuEventCreate)
    FIND(cuEventDestroy)
    FIND(cuEventRecord)
    FIND(cuMemsetD8Async)
    FIND(cuMemAlloc)
    FIND(cuMemFree)
    FIND(cuStreamBeginCapture)
    FIND(cuStreamEndCapture)
    FIND(cuGraphLaunch)
    FIND(cuGraphDestroy)
    FIND(cuGraphExecDestroy)
#undef FIND
    find(cuGraphInstantiate, "cuGraphInstantiateWithFlags", 11040);
    find(cuCtxCreate, "cuCtxCreate", 3020);
    find(get_counters, "simcuda_get_counters");
    find(call_count, "simcuda_call_count");
    find(fail, "simcuda_fail");
    find(launch, "simcuda_launch");
    find(last_race, "simcuda_last_race");
    cuInit(0);
}

const Cuda &cuda() {
    static const Cuda entries;
    return entries;
}

uint64_t driver_calls() {
    uint64_t count = 0;
    for (const char *name :
         {"cuCtxRecordEvent", "cuEventRecord", "cuEventQuery", "cuMemCreate", "cuMemMap",
          "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAlloc", "cuMemFree"}) {
        count += cuda().call_count(name);
    }
    return count;
}

Heard last_failure() {
    return heard;
}

const emm_host &host() {
    static const emm_host the_host = {
        sizeof(emm_host),
        EMM_PLUGIN_ABI_MAJOR,
        EMM_PLUGIN_ABI_MINOR,
        0,
        "test",
        [](int32_t, const char *) {},
        hear,
        driver_entry,
        [](emm_context *, emm_deferred, void *, size_t) -> emm_status {
            return EMM_E_NOT_SUPPORTED;
        },
        [](emm_context *, size_t) -> size_t { return 0; },
        nullptr, // serves no IPC
        nullptr,
    };
    return the_host;
}

bool work_takes_ages() {
    const char *settings = getenv("EMM_SIM");
    const char *duration = settings ? strstr(settings, "duration=") : nullptr;
    return duration && atoll(duration + strlen("duration=")) >= 1'000'000; // microseconds
}

const emm_plugin &pool() {
    static const emm_plugin *const table = reinterpret_cast<emm_plugin_entry>(
        dlsym(open("EMM_TEST_POOL"), EMM_PLUGIN_ENTRY_SYMBOL))(&host());
    return *table;
}

simcuda_counters Simulation::counters() {
    auto counters = sized<simcuda_counters>();
    cuda().get_counters(&counters);
    return counters;
}

uint64_t Simulation::races() {
    return counters().races - forgiven_races;
}

void Simulation::forgive_races() {
    forgiven_races += races();
}

namespace {

template <class Function> emm_status with_texts(const std::string &options, Function function) {
    std::vector<std::string> values;
    for (const emm_option *option = pool().options; option->name; option++) {
        const std::string key = std::string(option->name) + "=";
        const size_t at = ("," + options).find("," + key);
        values.push_back(
            at == std::string::npos
                ? ""
                : options.substr(at + key.size(), options.find(',', at) - at - key.size()));
    }
    std::vector<const char *> texts;
    for (const std::string &value : values) {
        texts.push_back(value.empty() ? nullptr : value.c_str());
    }
    return function(texts.data());
}

} // namespace

emm_status create(const std::string &options, CUcontext context, emm_manager *&ret_manager,
                  const emm_host &its_host) {
    auto info = sized<emm_context_info>();
    info.cuda_context = context;
    unsigned long long id = 0;
    cuda().cuCtxGetId(context, &id);
    info.context_id = id;
    return with_texts(options, [&](const char *const *texts) {
        return pool().create(&its_host, &info, texts, &ret_manager);
    });
}

emm_status check_options(const std::string &options) {
    return with_texts(
        options, [](const char *const *texts) { return pool().check_options(&host(), texts); });
}

Simulation::Simulation(const std::string &options, const emm_host &its_host) {
    base_bytes_ = device_bytes();
    REQUIRE(cuda().cuCtxCreate(&context, 0, 0) == CUDA_SUCCESS);
    if (simulations++ == 0) {
        objects_before = objects();
    }
    REQUIRE(create(options, context, manager, its_host) == EMM_OK);
    REQUIRE(pool().initialize == nullptr);
}

Simulation::~Simulation() {
    for (CUstream stream : std::vector<CUstream>(streams_)) {
        destroy(stream);
    }
    close();
    CHECK(held() == 0);
    if (--simulations == 0) { // events may lie in another simulation's context
        CHECK(objects() == objects_before);
    }
    CHECK(races() == 0);
    end_context();
}

void Simulation::end_context() {
    cuda().cuCtxDestroy(context);
    context = nullptr;
}

void Simulation::close() {
    if (manager) {
        auto last = sized<emm_stats>(); // asking for them looks at the invariants as well
        CHECK(pool().get_stats(manager, &last) == EMM_OK);
        CHECK(pool().destroy(manager) == EMM_OK);
        manager = nullptr;
    }
}

emm_status Simulation::try_alloc(size_t size, CUstream stream, CUdeviceptr &ret_ptr) {
    return pool().memalloc(manager, size, stream, &ret_ptr);
}

CUdeviceptr Simulation::alloc(size_t size, CUstream stream) {
    CUdeviceptr ptr = 0;
    const emm_status status = try_alloc(size, stream, ptr);
    if (status != EMM_OK) {
        throw std::runtime_error("alloc: " + std::to_string(status) + ": " + heard.text);
    }
    return ptr;
}

emm_status Simulation::free(CUdeviceptr ptr, CUstream stream, size_t size) {
    return pool().memfree(manager, ptr, size, stream);
}

CUstream Simulation::stream(bool registered) {
    CUstream stream = nullptr;
    REQUIRE(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    streams_.push_back(stream);
    if (registered) {
        notice(stream, EMM_STREAM_REGISTERED);
        registered_.push_back(stream);
    }
    return stream;
}

void Simulation::destroy(CUstream stream) {
    const auto known = std::find(registered_.begin(), registered_.end(), stream);
    if (known != registered_.end()) {
        if (manager) {
            notice(stream, EMM_STREAM_RETIRING);
        }
        registered_.erase(known);
    }
    streams_.erase(std::find(streams_.begin(), streams_.end(), stream));
    cuda().cuStreamDestroy(stream);
}

void Simulation::notice(CUstream stream, uint32_t what) {
    REQUIRE(pool().stream_notice(manager, stream, what) == EMM_OK);
}

void Simulation::touch(CUdeviceptr ptr, size_t size, CUstream stream) {
    cuda().cuCtxPushCurrent(context);
    const CUresult result = cuda().cuMemsetD8Async(ptr, 1, size, stream);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    if (result != CUDA_SUCCESS) {
        throw std::runtime_error("cuMemsetD8Async: " + std::to_string(result));
    }
}

void Simulation::order(CUstream before, CUstream after) {
    CUevent event = nullptr;
    cuda().cuCtxPushCurrent(context);
    cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    cuda().cuEventRecord(event, before);
    cuda().cuStreamWaitEvent(after, event, 0);
    cuda().cuEventDestroy(event);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

emm_stats Simulation::stats() {
    auto stats = sized<emm_stats>();
    REQUIRE(pool().get_stats(manager, &stats) == EMM_OK);
    return stats;
}

void synchronize(Simulation &sim) {
    cuda().cuCtxPushCurrent(sim.context);
    cuda().cuCtxSynchronize();
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

size_t Simulation::trim(size_t keep) {
    size_t released = 0;
    REQUIRE(pool().trim(manager, keep, &released) == EMM_OK);
    return released;
}

} // namespace pool_test
