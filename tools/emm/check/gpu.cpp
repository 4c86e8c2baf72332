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
    EMM_CHECK_ENTRY(simcuda_launch)
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
    EMM_REQUIRE_CUDA(cuDevicePrimaryCtxRetain, &context, device);
    enter(context);
    return context;
}

void enter(CUcontext context) {
    EMM_REQUIRE_CUDA(cuCtxSetCurrent, context);
}

CUcontext make_context() {
    using Create = CUresult (*)(CUcontext *, void *, int, unsigned, CUdevice); // CUDA 12's
    CUcontext context = nullptr;
    require_cuda(driver_entry<Create>("cuCtxCreate")(&context, nullptr, 0, 0, 0), "cuCtxCreate");
    return context;
}

OwnedStream::OwnedStream(unsigned flags) {
    EMM_REQUIRE_CUDA(cuStreamCreate, &stream_, flags);
}

void OwnedStream::synchronize() const {
    EMM_REQUIRE_CUDA(cuStreamSynchronize, stream_);
}

void OwnedStream::wait_for(const OwnedStream &other) const {
    CUevent event = nullptr;
    EMM_REQUIRE_CUDA(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    EMM_REQUIRE_CUDA(cuEventRecord, event, other.get());
    EMM_REQUIRE_CUDA(cuStreamWaitEvent, stream_, event, 0);
    EMM_REQUIRE_CUDA(cuEventDestroy, event);
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
        EMM_REQUIRE_CUDA(cuMemsetD8Async, at, value, part, stream);
    }
}

bool is_marked(CUstream stream, emm_deviceptr ptr, size_t size, uint8_t value) {
    const size_t part = std::min(size, edge);
    std::vector<uint8_t> found(2 * part);
    uint8_t *to = found.data();
    for (const emm_deviceptr at : {ptr, ptr + size - part}) {
        EMM_REQUIRE_CUDA(cuMemcpyDtoHAsync, to, at, part, stream);
        to += part;
    }
    EMM_REQUIRE_CUDA(cuStreamSynchronize, stream);
    return std::all_of(found.begin(), found.end(), [=](uint8_t byte) { return byte == value; });
}

void launch(CUstream stream, emm_deviceptr ptr, size_t size) {
    const simcuda_range range = {ptr, size, 1, 0};
    require_cuda(CUresult(simulator().simcuda_launch(stream, nullptr, nullptr, &range, 1)),
                 "simcuda_launch");
}

void stall(CUstream stream, bool simulated) {
    if (!simulated) {
        EMM_REQUIRE_CUDA_ENTRY(cuLaunchHostFunc, stream, &take_a_while, nullptr);
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
