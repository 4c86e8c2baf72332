#include "check/gpu.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace emm::tool::check {
namespace {

constexpr size_t edge = 64;

struct Simulator {
#define EMM_CHECK_ENTRY(name) decltype(&::name) name = driver_entry<decltype(&::name)>(#name);
    EMM_CHECK_ENTRY(simcuda_get_counters)
    EMM_CHECK_ENTRY(simcuda_call_count)
    EMM_CHECK_ENTRY(simcuda_last_race)
    EMM_CHECK_ENTRY(simcuda_fail)
#undef EMM_CHECK_ENTRY
};

const Simulator &simulator() {
    static const Simulator found;
    return found;
}

void take_a_while(void *) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

} // namespace

CUcontext enter_device(int device) {
    CUcontext context = nullptr;
    require_cuda(driver_calls().cuDevicePrimaryCtxRetain(&context, device),
                 "cuDevicePrimaryCtxRetain");
    enter(context);
    return context;
}

void enter(CUcontext context) {
    require_cuda(driver_calls().cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

CUcontext make_context() {
    using Create = CUresult (*)(CUcontext *, void *, int, unsigned, CUdevice); // CUDA 12's
    CUcontext context = nullptr;
    require_cuda(driver_entry<Create>("cuCtxCreate")(&context, nullptr, 0, 0, 0), "cuCtxCreate");
    return context;
}

OwnedStream::OwnedStream(unsigned flags) {
    require_cuda(driver_calls().cuStreamCreate(&stream_, flags), "cuStreamCreate");
}

void OwnedStream::synchronize() const {
    require_cuda(driver_calls().cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

void OwnedStream::wait_for(const OwnedStream &other) const {
    const DriverCalls &driver = driver_calls();
    CUevent event = nullptr;
    require_cuda(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    require_cuda(driver.cuEventRecord(event, other.get()), "cuEventRecord");
    require_cuda(driver.cuStreamWaitEvent(stream_, event, 0), "cuStreamWaitEvent");
    require_cuda(driver.cuEventDestroy(event), "cuEventDestroy");
}

void OwnedStream::close() {
    if (stream_) {
        driver_calls().cuStreamDestroy(stream_);
    }
    stream_ = nullptr;
}

void mark(CUstream stream, emm_deviceptr ptr, size_t size, uint8_t value) {
    const size_t part = std::min(size, edge);
    for (const emm_deviceptr at : {ptr, ptr + size - part}) {
        require_cuda(driver_calls().cuMemsetD8Async(at, value, part, stream), "cuMemsetD8Async");
    }
}

bool is_marked(CUstream stream, emm_deviceptr ptr, size_t size, uint8_t value) {
    const size_t part = std::min(size, edge);
    std::vector<uint8_t> found(2 * part);
    uint8_t *to = found.data();
    for (const emm_deviceptr at : {ptr, ptr + size - part}) {
        require_cuda(driver_calls().cuMemcpyDtoHAsync(to, at, part, stream), "cuMemcpyDtoHAsync");
        to += part;
    }
    require_cuda(driver_calls().cuStreamSynchronize(stream), "cuStreamSynchronize");
    return std::all_of(found.begin(), found.end(), [=](uint8_t byte) { return byte == value; });
}

void stall(CUstream stream, bool simulated) {
    if (!simulated) {
        require_cuda(EMM_CHECK_CUDA(cuLaunchHostFunc)(stream, &take_a_while, nullptr),
                     "cuLaunchHostFunc");
    }
}

void open_simulator() {
    driver_calls();
    simulator();
}

simcuda_counters counters() {
    auto found = sized<simcuda_counters>();
    simulator().simcuda_get_counters(&found);
    return found;
}

uint64_t calls_of(const char *name) {
    return simulator().simcuda_call_count(name);
}

std::string latest_race() {
    return counters().races ? simulator().simcuda_last_race() : "";
}

uint64_t held_bytes() {
    const simcuda_counters found = counters();
    return found.device_bytes + found.host_bytes;
}

Fault::Fault(const std::string &what) : before_(counters().faults) {
    simulator().simcuda_fail(what.c_str());
}

Fault::~Fault() {
    simulator().simcuda_fail(nullptr);
}

bool Fault::happened() const {
    return counters().faults != before_;
}

} // namespace emm::tool::check
