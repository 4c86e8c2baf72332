// Behaviour: emm.hpp's exports to other processes, and arrays that other libraries read.
#include "gpu.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>

// As in DLPack 1.
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(DLManagedTensorVersioned *);
    uint64_t flags;
    void *data;
};

namespace {

constexpr size_t half = 1 << 20;

emm_status status_of(const auto &call) {
    try {
        call();
    } catch (const emm::Error &error) {
        return error.status();
    }
    return EMM_OK;
}

// Starts this program again for the test that opens exported memory.
FILE *start_importer() {
    char path[4096] = {};
    REQUIRE(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    return popen((std::string(path) + " '[importer]' >&2").c_str(), "w");
}

} // namespace

TEST_CASE("another process opens a part of device memory by handle and by name") {
    const emm::MemoryPointer memory(gpu(), 2 * half);
    const emm::Export shared(memory.view(half, 2 * half));
    FILE *const importer = start_importer();
    REQUIRE(importer);
    CHECK(fwrite(&shared.handle(), sizeof shared.handle(), 1, importer) == 1);
    const emm_ipc_name name = shared.name();
    CHECK(fwrite(&name, sizeof name, 1, importer) == 1);
    CHECK(pclose(importer) == 0);
}

TEST_CASE("the memory that the exporter sends is opened", "[.][importer]") {
    emm_ipc_handle handle;
    emm_ipc_name name;
    REQUIRE(fread(&handle, sizeof handle, 1, stdin) == 1);
    REQUIRE(fread(&name, sizeof name, 1, stdin) == 1);
    const emm::MemoryPointer by_handle = emm::open_ipc(gpu(), handle);
    const emm::MemoryPointer by_name = emm::open_ipc(gpu(), name);
    CHECK(by_handle.kind() == EMM_KIND_IPC);
    CHECK(by_handle.size() == half);
    CHECK(by_handle.ptr() == by_name.ptr());
}

TEST_CASE("an export keeps its memory until it ends, wherever it has moved") {
    emm::MemoryPointer memory(gpu(), half);
    {
        emm::Export first(memory);
        const emm::Export moved(std::move(first));
        CHECK(status_of([&] { memory.free(); }) == EMM_E_BUSY);
        CHECK(status_of([&] { emm::open_ipc(gpu(), moved.handle()); }) == EMM_E_INVALID_VALUE);
    }
    CHECK(status_of([&] { memory.free(); }) == EMM_OK);
}

TEST_CASE("an array keeps its memory and what describes it, wherever it has moved") {
    const uint64_t before = stats().live_bytes;
    {
        emm::Array first(emm::MemoryPointer(gpu(), 256), "<f4", {4, 8}, {64, 4}, 16);
        const emm::Array moved(std::move(first));
        const emm_array &array = moved.get();
        CHECK(array.data == moved.memory().ptr() + 16);
        CHECK(std::strcmp(array.typestr, "<f4") == 0);
        CHECK((array.ndim == 2 && array.shape[1] == 8 && array.strides[0] == 64));
        CHECK(emm_array_validate(&array) == EMM_OK);
        CHECK(stats().live_bytes == before + 256);
    }
    CHECK(stats().live_bytes == before);
    CHECK(status_of([] { emm::Array(emm::MemoryPointer(gpu(), 64), "<f4", {17}); }) ==
          EMM_E_INVALID_VALUE);
    CHECK(status_of([] {
              emm::Array(emm::MemoryPointer(gpu(), 64), "<f4", {2}, {4, 4});
          }) == EMM_E_INVALID_VALUE);
}

TEST_CASE("a tensor of DLPack keeps an array's memory until its deleter is called") {
    const uint64_t before = stats().live_bytes;
    const emm_deviceptr data = [] {
        return emm::Array(emm::MemoryPointer(gpu(), 64), "|u1", {64}).get().data;
    }();
    CHECK(data != 0);
    {
        const auto tensor = emm::Array(emm::MemoryPointer(gpu(), 64), "<i4", {16}).dlpack();
        CHECK(tensor->major == 1);
        CHECK(tensor->data != nullptr);
        CHECK(stats().live_bytes == before + 64);
    }
    CHECK(stats().live_bytes == before);
}

TEST_CASE("an imported array keeps its owner until its memory goes") {
    const emm::Array array(emm::MemoryPointer(gpu(), 256), "<f8", {4, 8});
    auto owner = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = owner;
    {
        const emm::ImportedArray imported =
            emm::import_array(gpu(), array.get(), EMM_STREAM_UNORDERED, std::move(owner));
        CHECK(imported.memory.ptr() == array.get().data);
        CHECK(imported.memory.kind() == EMM_KIND_EXTERNAL);
        CHECK(imported.layout.size == 256);
        CHECK((imported.layout.flags & EMM_ARRAY_C_CONTIGUOUS) != 0);
        CHECK_FALSE(watched.expired());
    }
    CHECK(watched.expired());
}
