// Two copies of libemm in one process, such as a wheel's beside that of `emm run`, share the limit
// of EMM_LIMIT for a device.
//
//     copies LIBEMM first|second|at-once|namespace|interposer
//     copies LIBEMM DEVICE
//
// The copy that begins: LIBEMM, a copy of that file, both at once (each with a driver in a
// namespace of dlmopen), or LIBEMM because `emm run` has loaded it. Needs EMM_LIMIT and the
// simulated driver. With a DEVICE the program does what it reads, and serves with a copy from its
// first step on.
#include "../parts/sized.h"

#include <emm/cuda.h>
#include <emm/emm.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <simcuda.h>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t mib = 1 << 20, bound = 8192 * mib, piece = 16 * mib;

void require(bool good, const char *what) {
    if (!good) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::_Exit(1);
    }
}
#define REQUIRE(condition) require(condition, #condition)

template <class Function> Function find(void *library, const char *name) {
    void *const found = library ? dlsym(library, name) : nullptr;
    require(found, name);
    return reinterpret_cast<Function>(found);
}
#define FIND(library, name) find<decltype(&::name)>(library, #name)

class Copy {
public:
    Copy(const std::string &path, bool has_namespace)
        : library_(has_namespace ? dlmopen(LM_ID_NEWLM, path.c_str(), RTLD_NOW)
                                 : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)),
          alloc_(FIND(library_, emm_memalloc)), free_(FIND(library_, emm_memfree)),
          trim_(FIND(library_, emm_trim)), account_(FIND(library_, emm_get_device_account)) {}

    void begin(int32_t device = 0) {
        REQUIRE(FIND(library_, emm_context_for_device)(device, &context_) == EMM_OK);
    }
    bool take() {
        emm_deviceptr ptr = 0;
        const emm_status status = alloc_(context_, piece, EMM_STREAM_UNORDERED, &ptr);
        REQUIRE(status == EMM_OK || status == EMM_E_OUT_OF_MEMORY);
        if (status == EMM_OK) {
            held_.push_back(ptr);
        }
        return status == EMM_OK;
    }
    std::string last_error() const { return FIND(library_, emm_last_error)()->text; }
    uint64_t bytes() const { return held_.size() * piece; }
    void free_all() {
        for (const emm_deviceptr ptr : held_) {
            REQUIRE(free_(context_, ptr, piece, EMM_STREAM_UNORDERED) >= EMM_OK);
        }
        held_.clear();
    }
    void trim() {
        size_t released = 0;
        REQUIRE(trim_(context_, 0, &released) >= EMM_OK);
    }
    // The device bytes that its driver reports.
    uint64_t device_bytes() const {
        const emm_function get = FIND(library_, emm_driver_entry)("simcuda_get_counters", 12000);
        auto counters = sized<simcuda_counters>();
        REQUIRE(get);
        reinterpret_cast<decltype(&::simcuda_get_counters)>(get)(&counters);
        return counters.device_bytes;
    }
    emm_device_account account() const {
        auto account = sized<emm_device_account>();
        REQUIRE(account_(0, &account) == EMM_OK);
        return account;
    }

private:
    void *const library_;
    const decltype(&::emm_memalloc) alloc_;
    const decltype(&::emm_memfree) free_;
    const decltype(&::emm_trim) trim_;
    const decltype(&::emm_get_device_account) account_;
    emm_context *context_ = nullptr;
    std::vector<emm_deviceptr> held_;
};

void fill(Copy &one, Copy &other) {
    for (bool one_goes_on = true, other_goes_on = true; one_goes_on || other_goes_on;) {
        one_goes_on = one_goes_on && one.take();
        other_goes_on = other_goes_on && other.take();
    }
}

// The program's own, by the interposer.
CUmemGenericAllocationHandle create(CUresult &ret_result) {
    const auto create = FIND(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), cuMemCreate);
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    ret_result = create(&handle, piece, &properties, 0);
    return handle;
}

uint64_t bytes_of_drivers(const Copy &one, const Copy &other, bool is_one_driver) {
    return one.device_bytes() + (is_one_driver ? 0 : other.device_bytes());
}

void share_one_account(Copy &one, Copy &other, bool is_one_driver) {
    fill(one, other);
    REQUIRE(one.bytes() + other.bytes() <= bound);
    REQUIRE(one.bytes() + other.bytes() >= bound / 100 * 99);
    REQUIRE(one.bytes() >= bound / 3 && other.bytes() >= bound / 3);
    REQUIRE(bytes_of_drivers(one, other, is_one_driver) <= bound);
    for (Copy *each : {&one, &other}) {
        REQUIRE(each->account().limit_bytes == bound);
        REQUIRE(each->account().used_bytes == bytes_of_drivers(one, other, is_one_driver));
        REQUIRE(!each->take());
        REQUIRE(each->last_error().find("another copy of libemm") != std::string::npos);
    }
}

// Freed memory that one copy's plugin keeps serves the other copy.
void serve_each_other(Copy &one, Copy &other, bool is_one_driver) {
    one.free_all();
    const uint64_t before = other.bytes();
    while (other.take()) {
    }
    REQUIRE(other.bytes() >= bound / 100 * 99 && other.bytes() > before);
    REQUIRE(bytes_of_drivers(one, other, is_one_driver) <= bound);
    other.free_all();
    other.trim();
    one.trim();
    REQUIRE(bytes_of_drivers(one, other, is_one_driver) == 0);
    REQUIRE(one.account().used_bytes == 0 && other.account().used_bytes == 0);
}

// "one fill", "other free": prints the MiB that the copy then has.
int follow(Copy &one, Copy &other, int32_t device) {
    one.account(); // this copy is the first
    other.account();
    std::puts("ready");
    std::fflush(stdout);
    char who[8], what[8];
    while (std::scanf("%7s %7s", who, what) == 2) {
        Copy &copy = std::strcmp(who, "one") == 0 ? one : other;
        copy.begin(device);
        while (std::strcmp(what, "fill") == 0 && copy.take()) {
        }
        if (std::strcmp(what, "free") == 0) {
            copy.free_all();
        }
        std::printf("%llu\n", static_cast<unsigned long long>(copy.bytes() / mib));
        std::fflush(stdout);
    }
    return 0;
}

} // namespace

int main(int argc, char *argv[]) {
    REQUIRE(argc == 3);
    const std::string how = argv[2];
    char folder[] = "/tmp/emm-copies-XXXXXX";
    REQUIRE(mkdtemp(folder));
    const std::string path = std::string(folder) + "/libemm.so.1";
    std::filesystem::copy_file(argv[1], path);
    const bool is_one_driver = how != "namespace";
    Copy one(argv[1], !is_one_driver), other(path, !is_one_driver);
    std::filesystem::remove_all(folder);
    if (std::isdigit(how[0])) {
        return follow(one, other, std::stoi(how));
    }
    if (how == "interposer") {
        void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
        REQUIRE(FIND(driver, cuInit)(0) == CUDA_SUCCESS);
    }
    if (how == "at-once" || how == "namespace") {
        std::thread thread([&] { one.begin(); });
        other.begin();
        thread.join();
    } else {
        (how == "second" ? other : one).begin();
        (how == "second" ? one : other).begin();
    }
    for (int time = 0; time < 2; time++) {
        share_one_account(one, other, is_one_driver);
        if (how == "interposer") {
            CUresult result = CUDA_SUCCESS;
            create(result);
            REQUIRE(result == CUDA_ERROR_OUT_OF_MEMORY);
        }
        serve_each_other(one, other, is_one_driver);
        serve_each_other(other, one, is_one_driver);
    }
    if (how == "interposer") { // the interposer's copy serves the program's own
        CUresult result = CUDA_SUCCESS;
        const CUmemGenericAllocationHandle handle = create(result);
        REQUIRE(result == CUDA_SUCCESS && other.account().used_bytes == piece);
        while (other.take()) {
        }
        REQUIRE(other.bytes() <= bound - piece && other.bytes() >= bound / 100 * 99);
        FIND(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), cuMemRelease)(handle);
        other.free_all();
    }
    return 0;
}
