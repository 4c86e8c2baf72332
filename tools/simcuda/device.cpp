#include "device.h"

#include "call.h"
#include "simulator.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simcuda {
namespace {

constexpr uint64_t align_up(uint64_t value, uint64_t to) {
    return (value + to - 1) / to * to;
}

// Makes the system call directly, because a sanitizer's mmap would prepare for every byte of the
// mapping.
std::byte *map(void *where, uint64_t size, int protection, int flags, int fd) {
    const long mapped = syscall(SYS_mmap, where, size, protection, flags, fd, 0);
    return mapped == -1 ? nullptr : reinterpret_cast<std::byte *>(mapped);
}

// Maps the file at an address that is a multiple of the granule.
std::byte *map_file(int fd, uint64_t size, int protection) {
    std::byte *reserved = map(nullptr, size + Device::granule, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (!reserved) {
        return nullptr;
    }
    auto *aligned = reinterpret_cast<std::byte *>(
        align_up(reinterpret_cast<uint64_t>(reserved), Device::granule));
    return map(aligned, size, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd);
}

// Beyond RLIMIT_FSIZE the call fails; a signal does not end the program.
bool set_size(int fd, uint64_t size) {
    sigset_t signal, before;
    sigemptyset(&signal);
    sigaddset(&signal, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal, &before);
    const int error = ftruncate(fd, static_cast<off_t>(size)) == 0 ? 0 : errno;
    const timespec at_once = {};
    if (error == EFBIG) {
        sigtimedwait(&signal, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error;
    return error == 0;
}

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
        {CUdevice_attribute(132), 0}, // MULTICAST_SUPPORTED: objects are made, and not mapped
        {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 1},
        {141, 1}, // HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, which older headers lack
        {145, 1}, // HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    };
    return all;
}

} // namespace

// Twice as many addresses as bytes. Real memory is paged, so scattered free pages can serve one
// block; here the addresses must not run out before the memory does.
bool Device::open(uint64_t bytes) {
    capacity = align_up(bytes, granule);
    window_size = 2 * capacity;
    store.fd = memfd_create("simcuda", MFD_CLOEXEC);
    store.size = window_size;
    if (store.fd < 0 || !set_size(store.fd, window_size)) {
        return false;
    }
    const bool visible = sim().options.host_access;
    std::byte *seen = map_file(store.fd, window_size, visible ? PROT_READ | PROT_WRITE : PROT_NONE);
    store.bytes = visible ? seen : map_file(store.fd, window_size, PROT_READ | PROT_WRITE);
    window = reinterpret_cast<CUdeviceptr>(seen);
    granules_.give(0, window_size);
    return seen && store.bytes;
}

uint64_t Device::rounded(uint64_t size) {
    return align_up(size, size < small_limit ? small_granule : granule);
}

uint64_t Device::rounded_small(uint64_t size) {
    return align_up(size, small_granule);
}

uint64_t Device::shift(uint64_t size) {
    constexpr uint64_t distance = 1024;
    return size >= small_limit && rounded(size) - size >= distance ? distance : 0;
}

std::optional<uint64_t> Device::take(uint64_t size) {
    const uint64_t bytes = rounded(size);
    if (bytes < size || bytes > capacity - used) {
        return std::nullopt;
    }
    std::optional<uint64_t> offset;
    if (size >= small_limit) {
        offset = granules_.take(bytes);
    } else if (offset = small_.take(bytes); !offset) {
        if (const auto fresh = granules_.take(granule)) {
            small_.give(*fresh, granule);
            offset = small_.take(bytes);
        }
    }
    if (offset) {
        used += bytes;
        totals().add(bytes);
    }
    return offset;
}

Totals &Device::totals() const {
    return of_host ? sim().host_totals : sim().device_totals;
}

void Device::give(uint64_t offset, uint64_t size) {
    const uint64_t bytes = rounded(size);
    used -= bytes;
    totals().remove(bytes);
    if (size >= small_limit) {
        offset -= offset % granule;
        punch(offset, bytes);
        granules_.give(offset, bytes);
        return;
    }
    const Extents::Range range = small_.give(offset, bytes);
    if (range.size == granule) {
        small_.take_at(range.start, granule);
        punch(range.start, granule);
        granules_.give(range.start, granule);
    }
    stale_ += bytes;
    if (stale_ > 32 * granule) {
        punch_small();
    }
}

void Device::punch(uint64_t offset, uint64_t size) {
    (void)fallocate(store.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), static_cast<off_t>(size));
}

void Device::punch_small() {
    for (const auto &[start, size] : small_.ranges()) {
        punch(start, size); // frees whole pages, clears the rest
    }
    stale_ = 0;
}

Device *device_at(CUdevice ordinal) {
    const auto &devices = sim().devices;
    const auto index = static_cast<size_t>(ordinal); // a negative ordinal is beyond all devices
    return index < devices.size() ? devices[index].get() : nullptr;
}

// Host memory for devices, as much as a device has.
Device &host_memory_of_devices() {
    std::unique_ptr<Device> &host = sim().host_pages;
    if (!host) {
        auto opened = std::make_unique<Device>();
        opened->ordinal = -1;
        opened->of_host = true;
        expect(opened->open(sim().options.memory), CUDA_ERROR_OUT_OF_MEMORY);
        host = std::move(opened);
    }
    return *host;
}

Device &find_device(CUdevice ordinal) {
    Device *const device = device_at(ordinal);
    expect(device, CUDA_ERROR_INVALID_DEVICE);
    return *device;
}

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
