// NumPy's handler, called as NumPy calls it.
#include "client.h"

#include <cstring>
#include <set>
#include <simcuda.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

struct Numpy {
    const NumpyAllocator allocator = emm_numpy_handler(0)->allocator;

    unsigned char *make(size_t size) const {
        return static_cast<unsigned char *>(allocator.malloc(allocator.ctx, size));
    }
    unsigned char *make_zeroed(size_t count, size_t size) const {
        return static_cast<unsigned char *>(allocator.calloc(allocator.ctx, count, size));
    }
    unsigned char *resize(void *ptr, size_t size) const {
        return static_cast<unsigned char *>(allocator.realloc(allocator.ctx, ptr, size));
    }
    void drop(void *ptr, size_t size) const { allocator.free(allocator.ctx, ptr, size); }
};

// Whether the driver knows the memory as host memory of its own.
bool is_pinned(const void *ptr) {
    unsigned type = 0;
    const CUresult result = CU(cuPointerGetAttribute)(
        &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUdeviceptr(reinterpret_cast<uintptr_t>(ptr)));
    return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST;
}

} // namespace

TEST_CASE("NumPy's handler has NumPy's layout, a name and a version") {
    CHECK(sizeof(NumpyHandler) == 128 + 5 * sizeof(void *));
    CHECK(offsetof(NumpyHandler, version) == 127);
    const NumpyHandler *handler = emm_numpy_handler(0);
    CHECK(std::string(handler->name) == "emm pinned memory of device 0");
    CHECK(handler->version == 1);
    CHECK(std::string(emm_numpy_capsule_name()) == "mem_handler");
    CHECK(emm_numpy_handler(0) == handler);
}

TEST_CASE("a handler for a device that does not exist is refused") {
    CHECK(emm_numpy_handler(999) == nullptr);
    CHECK(emm_last_error()->code < EMM_OK);
    CHECK(emm_numpy_handler(-1) == nullptr);
}

TEST_CASE("the interpreter's lock is not held while memory is pinned or unpinned") {
    static int saved, restored;
    saved = restored = 0;
    const auto thread = []() -> void * { return &restored; };
    const PythonFunctions counting = {nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      thread,
                                      thread,
                                      []() -> void * {
                                          saved++;
                                          return &saved;
                                      },
                                      [](void *thread) { restored += thread == &saved; }};
    const Numpy numpy;
    numpy.drop(numpy.make(100), 100); // from memory that is pinned
    emm_python_set_functions(&counting);
    unsigned char *small = numpy.make(100), *large = numpy.make(1 << 20);
    CHECK(saved == 1);
    numpy.drop(large, 1 << 20);
    CHECK(saved == 2);
    numpy.drop(small, 100);
    CHECK(restored == saved);
    const PythonFunctions none = {};
    emm_python_set_functions(&none);
}

TEST_CASE("NumPy's arrays lie in pinned memory, aligned for its widest instructions") {
    const Numpy numpy;
    for (const size_t size : {size_t(1), size_t(100), size_t(16) << 10, size_t(1) << 20}) {
        unsigned char *array = numpy.make(size);
        REQUIRE(array != nullptr);
        CHECK(is_pinned(array));
        CHECK(is_pinned(array + size - 1));
        CHECK(reinterpret_cast<uintptr_t>(array) % 64 == 0);
        std::memset(array, 1, size);
        numpy.drop(array, 0); // as for an array whose shape was changed
        CHECK((size < (1 << 20) || !is_pinned(array)));
    }
}

TEST_CASE("small arrays share pinned memory, whose bytes are not given out again") {
    const Numpy numpy;
    std::vector<unsigned char *> kept;
    std::set<unsigned char *> given;
    for (size_t i = 0; i < 3000; i++) {
        unsigned char *array = numpy.make(1000);
        REQUIRE(is_pinned(array));
        CHECK(given.insert(array).second); // the device may still use freed memory
        std::memset(array, static_cast<int>(i % 251), 1000);
        if (i % 10 == 0) {
            kept.push_back(array);
        } else {
            numpy.drop(array, 1000);
        }
    }
    for (size_t i = 0; i < kept.size(); i++) {
        CHECK(kept[i][0] == i * 10 % 251);
        CHECK(kept[i][999] == i * 10 % 251);
        numpy.drop(kept[i], 1000);
    }
}

TEST_CASE("zeroed arrays are zero although their memory was used before") {
    const Numpy numpy;
    for (int round = 0; round < 3; round++) {
        unsigned char *array = numpy.make_zeroed(1000, 8);
        REQUIRE(array != nullptr);
        CHECK(std::string(reinterpret_cast<char *>(array), 8000) == std::string(8000, '\0'));
        std::memset(array, 0xff, 8000);
        numpy.drop(array, 8000);
    }
}

TEST_CASE("an array that is resized keeps its bytes") {
    const Numpy numpy;
    unsigned char *array = numpy.resize(nullptr, 100);
    std::memset(array, 7, 100);
    array = numpy.resize(array, 100'000);
    CHECK(array[0] == 7);
    CHECK(array[99] == 7);
    CHECK(numpy.resize(array, 60'000) == array);
    unsigned char *const large = array;
    array = numpy.resize(array, 10);
    CHECK(array[9] == 7);
    CHECK(array != large);
    CHECK_FALSE(is_pinned(large));
    numpy.drop(array, 10);
}

TEST_CASE("NumPy is told by NULL when there is no memory, and keeps what it had") {
    const Numpy numpy;
    CHECK(numpy.make(SIZE_MAX - 10) == nullptr);
    CHECK(numpy.make_zeroed(SIZE_MAX / 4, 8) == nullptr);
    unsigned char *array = numpy.make(10);
    array[9] = 5;
    CHECK(numpy.resize(array, SIZE_MAX - 10) == nullptr);
    CHECK(array[9] == 5);
    numpy.drop(array, 10);
    numpy.drop(nullptr, 0);
}

TEST_CASE("after the end NumPy's arrays lie in ordinary memory, and each is freed by its kind") {
    const Numpy numpy;
    unsigned char *pinned = numpy.make(1 << 20);
    std::memset(pinned, 7, 1 << 20);
    REQUIRE(emm_shutdown() == EMM_OK);
    CHECK(pinned[(1 << 20) - 1] == 7);
    unsigned char *array = numpy.make(100);
    REQUIRE(array != nullptr);
    CHECK_FALSE(is_pinned(array));
    array = numpy.resize(array, 1000);
    std::memset(array, 1, 1000);
    numpy.drop(array, 1000);
    CHECK(late_frees() == 0);
    numpy.drop(pinned, 1 << 20);
    CHECK(late_frees() == 1);
}

TEST_CASE("arrays outlive a reset of the context, and new ones are pinned again") {
    const Numpy numpy;
    unsigned char *small = numpy.make(100), *large = numpy.make(1 << 20);
    std::memset(small, 3, 100);
    std::memset(large, 4, 1 << 20);
    REQUIRE(emm_context_reset(gpu()) == EMM_OK);
    CHECK_FALSE(is_pinned(large));
    CHECK(small[99] == 3);
    CHECK(large[(1 << 20) - 1] == 4);
    CHECK(is_pinned(numpy.make(100)));
    large = numpy.resize(large, 3 << 20);
    CHECK(is_pinned(large));
    CHECK(large[(1 << 20) - 1] == 4);
    numpy.drop(small, 100);
    numpy.drop(large, 3 << 20);
}

TEST_CASE("arrays outlive the CUDA context, and later ones lie in ordinary memory") {
    const Numpy numpy;
    unsigned char *small = numpy.make(100), *large = numpy.make(1 << 20);
    std::memset(small, 3, 100);
    std::memset(large, 4, 1 << 20);
    REQUIRE(CU(cuDevicePrimaryCtxReset)(0) == CUDA_SUCCESS);
    CHECK(small[99] == 3);
    CHECK(large[(1 << 20) - 1] == 4);
    unsigned char *later = numpy.make_zeroed(1000, 1000);
    REQUIRE(later != nullptr);
    CHECK(later[999'999] == 0);
    for (unsigned char *array : {small, large, later}) {
        numpy.drop(array, 0);
    }
}

TEST_CASE("after the device is lost new arrays lie in ordinary memory") {
    const Numpy numpy;
    const auto fail =
        reinterpret_cast<decltype(&simcuda_fail)>(emm_driver_entry("simcuda_fail", 12000));
    if (!fail) {
        WARN("skipped: the driver is not simulated");
        return;
    }
    unsigned char *before = numpy.make(1 << 20);
    before[0] = 5;
    REQUIRE(fail("cuMemHostRegister@1:700") == CUDA_SUCCESS);
    for (const size_t size : {size_t(1) << 20, size_t(100)}) {
        unsigned char *array = numpy.make(size);
        REQUIRE(array != nullptr);
        std::memset(array, 1, size);
        numpy.drop(array, size);
    }
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(gpu(), 100, EMM_STREAM_LEGACY, &none) == EMM_E_DEVICE_LOST);
    CHECK(before[0] == 5);
    numpy.drop(before, 1 << 20);
}

TEST_CASE("in a forked child NumPy goes on in ordinary memory") {
    const Numpy numpy;
    numpy.drop(numpy.make(100), 100);
    const pid_t child = fork();
    if (child == 0) {
        unsigned char *array = numpy.make_zeroed(10, 10);
        const bool good = array && array[99] == 0;
        numpy.drop(array, 100);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
