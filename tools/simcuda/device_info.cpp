#include "call.h"
#include "simulator.h"

#include <cstdio>
#include <cstring>

namespace simcuda {
namespace {

// Device attributes. The rest are 0.
const std::map<int, int> &attributes() {
    static const std::map<int, int> all = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 1},
    };
    return all;
}

} // namespace

void api::device_get(CUdevice *device, int ordinal) {
    expect(device);
    *device = find_device(ordinal).ordinal;
}

void api::device_get_count(int *count) {
    tell(count, static_cast<int>(sim().devices.size()));
}

void api::device_get_name(char *name, int len, CUdevice dev) {
    find_device(dev);
    expect(name && len > 0);
    snprintf(name, static_cast<size_t>(len), "Simulated device");
}

// The same in every process, as with real devices.
void api::device_get_uuid(CUuuid *uuid, CUdevice dev) {
    find_device(dev);
    expect(uuid);
    std::memcpy(uuid->bytes, "simulated CUDA\0", 16);
    uuid->bytes[15] = static_cast<char>(dev + 1);
}

void api::device_total_mem(size_t *bytes, CUdevice dev) {
    tell(bytes, find_device(dev).capacity);
}

void api::device_get_attribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    find_device(dev);
    expect(pi);
    const auto found = attributes().find(attrib);
    const bool unable = attrib == CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY && !sim().options.mapping;
    *pi = attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? dev + 1
          : found == attributes().end() || unable  ? 0
                                                   : found->second;
}

void api::device_get_pci_bus_id(char *pci_bus_id, int len, CUdevice dev) {
    find_device(dev);
    expect(pci_bus_id && len >= 13);
    snprintf(pci_bus_id, static_cast<size_t>(len), "0000:%02X:00.0", dev + 1);
}

void api::device_get_by_pci_bus_id(CUdevice *dev, const char *pci_bus_id) {
    unsigned domain = 0, bus = 0, slot = 0;
    expect(dev && pci_bus_id &&
           (sscanf(pci_bus_id, "%x:%x:%x", &domain, &bus, &slot) == 3 ||
            sscanf(pci_bus_id, "%x:%x", &bus, &slot) == 2));
    expect(domain == 0 && slot == 0 && bus != 0 && bus <= sim().devices.size(),
           CUDA_ERROR_INVALID_DEVICE);
    *dev = static_cast<CUdevice>(bus - 1);
}

void api::device_can_access_peer(int *can_access_peer, CUdevice dev, CUdevice peer_dev) {
    find_device(dev);
    find_device(peer_dev);
    tell(can_access_peer, dev != peer_dev && sim().options.peers);
}

} // namespace simcuda
