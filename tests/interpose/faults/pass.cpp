#include "pass.h"

#include "../../parts/ends.h"
#include "../../parts/failing_calls.h"
#include "../../parts/simulator.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <emm/emm.h>

namespace faults {
namespace {

Simulator simulator;
uint64_t failed_before = 0, refused_before = 0;
thread_local bool is_programs = false; // a thread of emm's has never been told

uint64_t refusals() {
    uint64_t sum = 0;
    for (const char *name : {"cuMemFree", "cuMemFreeAsync", "cuMemFreeHost", "cuMemHostUnregister",
                             "cuMemUnmap", "cuMemRelease", "cuMemAddressFree", "cuMemPoolDestroy",
                             "cuEventDestroy", "cuStreamDestroy", "cuCtxPopCurrent",
                             "cuUserObjectRelease", "cuDevicePrimaryCtxRelease"}) {
        sum += simulator.fault_count(name);
    }
    return sum;
}

bool is_concerned(const void *caller) {
    return !is_programs && !simulator.calls(caller);
}

std::string text_of(CUresult result) {
    const char *name = nullptr;
    return cu.cuGetErrorName(result, &name) == CUDA_SUCCESS ? name : "no CUresult";
}

} // namespace

void open_simulator() {
    simulator.open();
    simulator.spare(1);
    is_programs = true;
}

void arm(const std::string &fault) {
    failed_before = simulator.counters().faults;
    refused_before = refusals();
    if (fault.starts_with("any@") || fault.empty()) {
        simulator.fail(fault.c_str());
        return;
    }
    const auto kind = fault.starts_with("memory")   ? failing_calls::Kind::memory
                      : fault.starts_with("thread") ? failing_calls::Kind::threads
                                                    : failing_calls::Kind::system;
    const auto first = unsigned(std::stoul(fault.substr(fault.find('@') + 1)));
    failing_calls::arm({kind, first, fault.ends_with('+'), 0, nullptr}, &is_concerned);
}

void disarm() {
    simulator.fail(nullptr);
    failing_calls::disarm();
}

unsigned failures() {
    return unsigned(simulator.counters().faults - failed_before) + failing_calls::failures();
}

std::string culprit() {
    const std::string call = failing_calls::last_failure();
    return call.empty() ? simulator.last_fault() : call;
}

CUresult unspared(const std::function<CUresult()> &entry) {
    simulator.spare(0);
    is_programs = false;
    const CUresult result = entry();
    is_programs = true;
    simulator.spare(1);
    return result;
}

bool keeps_something() {
    return refusals() != refused_before;
}

std::string holdings() {
    const simcuda_counters found = simulator.counters();
    return std::to_string(found.device_bytes) + " bytes in " + std::to_string(found.device_blocks) +
           " blocks on devices, " + std::to_string(found.host_bytes) + " in " +
           std::to_string(found.host_blocks) + " on the host, " + std::to_string(found.objects) +
           " objects";
}

int64_t uncounted_bytes() {
    static void *const libemm = dlopen("libemm.so.1", RTLD_LAZY | RTLD_NOLOAD);
    static const auto get = reinterpret_cast<decltype(&emm_get_device_account)>(
        libemm ? dlsym(libemm, "emm_get_device_account") : nullptr);
    uint64_t counted = 0;
    auto account = sized<emm_device_account>();
    for (int device = 0; get && get(device, &account) == EMM_OK; device++) {
        if (account.limit_bytes == 0) {
            return 0;
        }
        counted += account.used_bytes;
    }
    return int64_t(simulator.counters().device_bytes - counted);
}

void must(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "the test itself could not be done: %s: %s\n", what,
                     text_of(result).c_str());
        std::_Exit(2);
    }
}

Pass::Pass() {
    must(cu.cuCtxCreate_v2(&context_, 0, 0), "cuCtxCreate");
    for (CUstream &stream : streams_) {
        must(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
}

bool Pass::call(const char *name, const std::function<CUresult()> &entry) {
    const CUresult result = unspared(entry);
    if (result != CUDA_SUCCESS && !has_failed()) {
        complain(std::string(name) + " failed with " + text_of(result) +
                 ", and no driver call has");
    }
    if (text_of(result) == "no CUresult") {
        complain(std::string(name) + " answered " + std::to_string(result));
    }
    return result == CUDA_SUCCESS;
}

void Pass::undo_later(const char *name, const std::function<CUresult()> &entry) {
    owed_.push_back({name, entry});
}

void Pass::give_back() {
    while (!owed_.empty() && call(owed_.back().name, owed_.back().entry)) {
        owed_.pop_back();
    }
}

CUdeviceptr Pass::allocate(size_t size) {
    CUdeviceptr ptr = 0;
    if (!call("cuMemAlloc", [&] { return cu.cuMemAlloc(&ptr, size); })) {
        return 0;
    }
    undo_later("cuMemFree", [ptr] { return cu.cuMemFree(ptr); });
    use(ptr, size, streams_[0]);
    return ptr;
}

CUdeviceptr Pass::allocate_on(CUstream stream, size_t size) {
    CUdeviceptr ptr = 0;
    if (!call("cuMemAllocAsync", [&] { return cu.cuMemAllocAsync(&ptr, size, stream); })) {
        return 0;
    }
    undo_later("cuMemFreeAsync", [=] { return cu.cuMemFreeAsync(ptr, stream); });
    use(ptr, size, stream);
    return ptr;
}

void Pass::use(CUdeviceptr ptr, size_t size, CUstream stream) const {
    write_ends(cu, Ends(ptr, size), 7, stream);
}

void Pass::end() {
    for (; !owed_.empty(); owed_.pop_back()) {
        const Debt debt = owed_.back();
        const CUresult result = debt.entry();
        if (result != CUDA_SUCCESS) {
            complain(std::string(debt.name) + " failed, and fails with " + text_of(result) +
                     " when it is called again");
        }
    }
    must(cu.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    for (int i = 0; i < 3; i++) {
        CUdeviceptr ptr = 0, ordered = 0;
        if (cu.cuMemAlloc(&ptr, 5000) != CUDA_SUCCESS ||
            cu.cuMemAllocAsync(&ordered, 5000, streams_[1]) != CUDA_SUCCESS) {
            complain("after the failure no memory is given out");
            break;
        }
        use(ptr, 5000, streams_[0]);
        use(ordered, 5000, streams_[1]);
        expect_ends(cu, Ends(ptr, 5000), 7, streams_[0]);
        must(cu.cuMemFree(ptr), "cuMemFree");
        must(cu.cuMemFreeAsync(ordered, streams_[1]), "cuMemFreeAsync");
    }
    must(cu.cuCtxDestroy(context_), "cuCtxDestroy");
}

} // namespace faults
