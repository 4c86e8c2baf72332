// DLPack 1's ABI, written from its specification: the tags are those of dlpack/dlpack.h, so that
// emm/array.h names the same structs to programs that include it. Never included beside that
// header.
#pragma once

#include <cstdint>

namespace emm::dlpack {

inline constexpr uint32_t major_version = 1, minor_version = 1;

inline constexpr int32_t cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13; // device types
inline constexpr uint8_t integer = 0, unsigned_integer = 1, real = 2, complex = 5, boolean = 6;
inline constexpr uint64_t read_only = 1; // a flag

struct Version {
    uint32_t major, minor;
};

struct Device {
    int32_t type, id;
};

struct DataType {
    uint8_t code, bits;
    uint16_t lanes;
};

struct Tensor {
    void *data;
    Device device;
    int32_t ndim;
    DataType dtype;
    int64_t *shape, *strides; // strides in elements
    uint64_t byte_offset;
};

} // namespace emm::dlpack

struct DLManagedTensor {
    emm::dlpack::Tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
    emm::dlpack::Version version;
    void *manager_ctx;
    void (*deleter)(DLManagedTensorVersioned *self);
    uint64_t flags;
    emm::dlpack::Tensor dl_tensor;
};
