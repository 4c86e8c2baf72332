// The program's questions about memory while other threads allocate and free.
#include "worker.h"

namespace {

void expect(bool holds, const char *what) {
    if (!holds) {
        throw std::runtime_error(std::string("not so: ") + what);
    }
}

template <class Value> Value attribute(CUpointer_attribute which, CUdeviceptr ptr) {
    Value value = {};
    check(cu.cuPointerGetAttribute(&value, which, ptr), "cuPointerGetAttribute");
    return value;
}

// Memory that another thread may be freeing is there or not.
void expect_known_or_not(CUresult result, const char *what) {
    if (result != CUDA_ERROR_NOT_FOUND && result != CUDA_ERROR_INVALID_VALUE) {
        check(result, what);
    }
}

} // namespace

void Worker::ask() {
    static constexpr void (Worker::*questions[])() = {
        &Worker::ask_about_own, &Worker::ask_about_shown, &Worker::ask_how_much};
    (this->*questions[below(std::size(questions))])();
}

// An allocation stands alone, and while it lives its id is unique. At half of the addresses another
// block may have begun before.
void Worker::ask_about_own() {
    Block &block = mine_->blocks[below(mine_->blocks.size())];
    const size_t offset = below(block.size);
    const CUdeviceptr within = block.ptr + (chance_.one_in(2) ? offset : offset / 512 * 512);
    CUdeviceptr base = 0;
    size_t size = 0;
    check(cu.cuMemGetAddressRange(&base, &size, within), "cuMemGetAddressRange");
    expect(base == block.ptr && size >= block.size, "a block has its own range");
    expect(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, within) == block.ptr,
           "its attributes have its address");
    const unsigned place = block.kind == Kind::abroad ? abroad_of(place_) : place_;
    expect(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, within) ==
               world_.places[place].device,
           "they have its device");
    const auto id = attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, block.ptr);
    expect(block.id == 0 || block.id == id, "its id stays");
    for (const Block &other : mine_->blocks) {
        expect(&other == &block || other.id != id, "its id is no other's");
    }
    block.id = id;
    if (waits_at_free(block.kind)) {
        CUcontext context = nullptr;
        CUmemorytype type = CUmemorytype(0);
        CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                       CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
        void *told[] = {&context, &type};
        check(cu.cuPointerGetAttributes(2, which, told, block.ptr), "cuPointerGetAttributes");
        expect(context == world_.places[place_].context, "it has the context that it was made in");
    }
}

void Worker::ask_about_shown() {
    const CUdeviceptr ptr = world_.shown;
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned long long id = 0;
    unsigned type = 0;
    expect_known_or_not(cu.cuMemGetAddressRange(&base, &size, ptr), "cuMemGetAddressRange");
    expect_known_or_not(cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr),
                        "cuPointerGetAttribute");
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *told[] = {&id, &type};
    check(cu.cuPointerGetAttributes(2, which, told, ptr), "cuPointerGetAttributes");
}

void Worker::ask_how_much() {
    size_t free = 0, total = 0, device_total = 0;
    CUmemoryPool pool = nullptr;
    uint64_t used = 0, reserved = 0;
    const CUdevice device = world_.places[place_].device;
    check(cu.cuMemGetInfo(&free, &total), "cuMemGetInfo");
    expect(free <= total, "no more is free than there is");
    check(cu.cuDeviceTotalMem(&device_total, device), "cuDeviceTotalMem");
    expect(device_total == total, "a device has as much as its contexts say");
    check(cu.cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
    check(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used),
          "cuMemPoolGetAttribute");
    check(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved),
          "cuMemPoolGetAttribute");
}
