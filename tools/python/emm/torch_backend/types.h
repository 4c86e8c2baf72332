// Names of PyTorch that the backend uses, and conversions to PyTorch's types.
#pragma once

#include "pool.h"

#include <atomic>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <emm/emm.h>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/headeronly/version.h>
#include <vector>

namespace emm::torch_backend {

namespace caching = c10::cuda::CUDACachingAllocator;
namespace device_caching = c10::CachingDeviceAllocator;

using c10::DeviceIndex;
using c10::GatheredContext;
using c10::MempoolId_t;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using caching::AllocatorTraceTracker;
using caching::CreateContextFn;
using caching::CUDAAllocator;
using caching::RecordContext;
using caching::TraceEntry;
using device_caching::AnnotationEntry;

using Lock = std::lock_guard<std::mutex>;
using Context = std::shared_ptr<GatheredContext>; // a stack, as PyTorch has gathered it
using Filter = std::function<bool(cudaStream_t)>;

constexpr int most_devices = 64;
constexpr MempoolId_t no_pool = {0, 0};

inline emm_deviceptr address_of(const void *ptr) {
    return reinterpret_cast<uintptr_t>(ptr);
}

inline void *pointer_to(emm_deviceptr address) {
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

inline c10::Device cuda_device(DeviceIndex device) {
    return {c10::DeviceType::CUDA, device};
}

// emm's text on the calling thread's last failure.
inline std::string last_words() {
    return emm_last_error()->text;
}

} // namespace emm::torch_backend
