#include "driver/driver.h"
#include "observe/error.h"

#include <cstring>

namespace emm::driver {

emm_status find_device(const Driver &driver, int32_t ordinal, CUdevice *ret_device) {
    int count = 0;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuDeviceGetCount, &count));
    if (ordinal < 0 || ordinal >= count) {
        return observe::refuse("device: expected 0 to {}, found {}", count - 1, ordinal);
    }
    return EMM_DRIVER_CALL(driver, cuDeviceGet, ret_device, ordinal);
}

emm_status identify_device(const Driver &driver, CUdevice device, DeviceIdentity *ret_identity) {
    CUuuid uuid = {};
    EMM_TRY(EMM_DRIVER_CALL(driver, cuDeviceGetUuid, &uuid, device));
    DeviceIdentity found;
    std::memcpy(found.uuid, uuid.bytes, sizeof found.uuid);
    const CUdevice_attribute attributes[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
                                             CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                             CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    for (int i = 0; i < 3; ++i) {
        int value = 0;
        EMM_TRY(EMM_DRIVER_CALL(driver, cuDeviceGetAttribute, &value, attributes[i], device));
        found.pci[i] = static_cast<uint32_t>(value);
    }
    *ret_identity = found;
    return EMM_OK;
}

CUresult look_up(const Driver &driver, emm_deviceptr address, Pointer &ret_pointer) noexcept {
    const auto ask = [&](CUpointer_attribute attribute, void *answer) {
        return driver.cuPointerGetAttribute(answer, attribute, address);
    };
    Pointer pointer;
    const CUresult result = ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, &pointer.device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned type = 0, managed = 0;
    pointer.managed =
        ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, &managed) == CUDA_SUCCESS && managed != 0;
    pointer.on_host = ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, &type) == CUDA_SUCCESS &&
                      type == CU_MEMORYTYPE_HOST && !pointer.managed;
    if (ask(CU_POINTER_ATTRIBUTE_HOST_POINTER, &pointer.host) != CUDA_SUCCESS) {
        pointer.host = nullptr;
    }
    ret_pointer = pointer;
    return CUDA_SUCCESS;
}

namespace {

// Waiting for a stream that captures would fail, and invalidate the capture.
emm_status wait(const Driver &driver, CUstream stream, CUstreamCaptureStatus capture) {
    if (capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        return observe::fail(EMM_E_CAPTURING, 0,
                             "emm cannot wait for the stream that makes the data, because it is "
                             "capturing; name the stream that will use the data");
    }
    return EMM_DRIVER_CALL(driver, cuStreamSynchronize, stream);
}

// The answers of a stream of another context to an event of this one.
bool refuses_stream(CUresult result) {
    return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT;
}

} // namespace

CUresult wait_for_work(const Driver &driver) noexcept {
    const RelaxedCapture relaxed(driver);
    void *fence = nullptr;
    const CUresult result = driver.cuMemHostAlloc(&fence, 1, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const CUresult waited = driver.cuMemFreeHost(fence);
    return waited == CUDA_SUCCESS ? waited : driver.cuMemFreeHost(fence);
}

emm_status order(const Driver &driver, emm_stream before, emm_stream after) {
    if (before == after) {
        return EMM_OK;
    }
    // While a capture includes a stream that the legacy stream waits for, the legacy stream answers
    // with an error, which is harmless.
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuStreamIsCapturing, before, &capture));
    if (after == EMM_STREAM_UNORDERED) {
        return wait(driver, before, capture);
    }
    CUevent event = nullptr;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING));
    CUresult result = driver.cuEventRecord(event, before);
    const bool recorded = result == CUDA_SUCCESS;
    if (recorded) {
        result = driver.cuStreamWaitEvent(after, event, 0);
    }
    driver.cuEventDestroy(event);
    if (!recorded && refuses_stream(result)) {
        return wait(driver, before, capture);
    }
    return check(result, recorded ? "cuStreamWaitEvent" : "cuEventRecord");
}

} // namespace emm::driver
