// The driver's own calls: cuMemAlloc, and cuMemAllocAsync on the device's default pool, which is
// told to keep what is freed.
#include "peer.h"

namespace emm::peers {
namespace {

template <class Entry> Entry entry(const char *name) {
    static const Driver::Lookup lookup = system_driver();
    const auto found = reinterpret_cast<Entry>(lookup(name));
    if (!found) {
        throw std::runtime_error(std::string("the driver has no ") + name);
    }
    return found;
}

struct DriverMemory {
    using Address = CUdeviceptr;
    decltype(&::cuMemAlloc) allocate_function = nullptr;
    decltype(&::cuMemFree) release_function = nullptr;

    Address allocate(size_t size) const {
        Address address;
        require(allocate_function(&address, size), "cuMemAlloc");
        return address;
    }
    void release(Address address, size_t) const { require(release_function(address), "cuMemFree"); }
};

struct AsyncMemory {
    using Address = CUdeviceptr;
    decltype(&::cuMemAllocAsync) allocate_function = nullptr;
    decltype(&::cuMemFreeAsync) release_function = nullptr;
    CUstream stream = nullptr;

    Address allocate(size_t size) const {
        Address address;
        require(allocate_function(&address, size, stream), "cuMemAllocAsync");
        return address;
    }
    void release(Address address, size_t) const {
        require(release_function(address, stream), "cuMemFreeAsync");
    }
};

struct Plain {
    using Memory = DriverMemory;
    Plain(const std::string &, Driver &, Purpose) {}
    Memory on(CUstream) const { return memory; }

    const DriverMemory memory = {entry<decltype(&::cuMemAlloc)>("cuMemAlloc"),
                                 entry<decltype(&::cuMemFree)>("cuMemFree")};
};

struct Async {
    using Memory = AsyncMemory;
    Async(const std::string &, Driver &, Purpose) {
        CUmemoryPool pool;
        cuuint64_t threshold = ~cuuint64_t(0);
        require(
            entry<decltype(&::cuDeviceGetDefaultMemPool)>("cuDeviceGetDefaultMemPool")(&pool, 0),
            "cuDeviceGetDefaultMemPool");
        require(entry<decltype(&::cuMemPoolSetAttribute)>("cuMemPoolSetAttribute")(
                    pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
                "cuMemPoolSetAttribute");
    }
    Memory on(CUstream stream) const { return {allocate, release, stream}; }

    const decltype(&::cuMemAllocAsync) allocate =
        entry<decltype(&::cuMemAllocAsync)>("cuMemAllocAsync");
    const decltype(&::cuMemFreeAsync) release =
        entry<decltype(&::cuMemFreeAsync)>("cuMemFreeAsync");
};

} // namespace
} // namespace emm::peers

int main(int count, char **arguments) {
    using namespace emm::peers;
    return count > 1 && std::string(arguments[1]) == "cuMemAllocAsync"
               ? run_peer<Async>(count, arguments, system_driver)
               : run_peer<Plain>(count, arguments, system_driver);
}
