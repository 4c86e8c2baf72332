// Behaviour: CUDA's promises about loading modules and launching kernels. The simulated driver
// keeps them all, but does not run kernels.
#include "cuda_driver.h"
#include "pending_work.h"

namespace {

constexpr const char *ptx = ".version 7.0\n.target sm_50\n.address_size 64\n"
                            ".visible .entry nothing()\n{\n ret;\n}\n";

// The entries that the simulated driver has only with kernels=none.
struct Kernels {
    Kernels() {
        if (cu().simulated()) {
            REQUIRE(cu().configure("kernels=none") == CUDA_SUCCESS);
        }
        module_load = cu().optional<decltype(&::cuModuleLoad)>("cuModuleLoad", 2000);
        module_load_data = cu().optional<decltype(&::cuModuleLoadData)>("cuModuleLoadData", 2000);
        module_unload = cu().optional<decltype(&::cuModuleUnload)>("cuModuleUnload", 2000);
        module_get_function =
            cu().optional<decltype(&::cuModuleGetFunction)>("cuModuleGetFunction", 2000);
        library_load_data =
            cu().optional<decltype(&::cuLibraryLoadData)>("cuLibraryLoadData", 12000);
        library_unload = cu().optional<decltype(&::cuLibraryUnload)>("cuLibraryUnload", 12000);
        library_get_kernel =
            cu().optional<decltype(&::cuLibraryGetKernel)>("cuLibraryGetKernel", 12000);
        launch_kernel = cu().optional<decltype(&::cuLaunchKernel)>("cuLaunchKernel", 4000);
        REQUIRE((module_load && module_load_data && module_unload && module_get_function &&
                 library_load_data && library_unload && library_get_kernel && launch_kernel));
    }
    CUresult launch(CUfunction function, unsigned threads, CUstream stream) const {
        return launch_kernel(function, 1, 1, 1, threads, 1, 1, 0, stream, nullptr, nullptr);
    }
    decltype(&::cuModuleLoad) module_load;
    decltype(&::cuModuleLoadData) module_load_data;
    decltype(&::cuModuleUnload) module_unload;
    decltype(&::cuModuleGetFunction) module_get_function;
    decltype(&::cuLibraryLoadData) library_load_data;
    decltype(&::cuLibraryUnload) library_unload;
    decltype(&::cuLibraryGetKernel) library_get_kernel;
    decltype(&::cuLaunchKernel) launch_kernel;
};

} // namespace

TEST_CASE("a kernel of a module takes its place in the order of its stream") {
    const Kernels kernels;
    PendingWork pending;
    const Device device;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    REQUIRE(kernels.module_load_data(&module, ptx) == CUDA_SUCCESS);
    REQUIRE(kernels.module_get_function(&function, module, "nothing") == CUDA_SUCCESS);
    const Stream stream;
    const Event behind;
    pending.begin(stream);
    CHECK(kernels.launch(function, 32, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuEventRecord(behind, stream) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(behind) == CUDA_ERROR_NOT_READY);
    pending.end();
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(behind) == CUDA_SUCCESS);
    CHECK(kernels.module_unload(module) == CUDA_SUCCESS);
}

TEST_CASE("a kernel of a library is launched where a function is expected") {
    const Kernels kernels;
    const Device device;
    const Stream stream;
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    REQUIRE(kernels.library_load_data(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0) ==
            CUDA_SUCCESS);
    REQUIRE(kernels.library_get_kernel(&kernel, library, "nothing") == CUDA_SUCCESS);
    CHECK(kernels.launch(reinterpret_cast<CUfunction>(kernel), 32, stream) == CUDA_SUCCESS);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(kernels.library_unload(library) == CUDA_SUCCESS);
}

TEST_CASE("what is no image, no file, no function or no thread is refused") {
    const Kernels kernels;
    const Device device;
    CUmodule module = nullptr;
    CHECK(kernels.module_load_data(&module, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK(kernels.module_load(&module, "/nonexistent/kernel.ptx") == CUDA_ERROR_FILE_NOT_FOUND);
    CHECK(kernels.launch(nullptr, 32, nullptr) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(kernels.module_load_data(&module, ptx) == CUDA_SUCCESS);
    CUfunction function = nullptr;
    REQUIRE(kernels.module_get_function(&function, module, "nothing") == CUDA_SUCCESS);
    const auto attribute =
        cu().optional<decltype(&::cuFuncGetAttribute)>("cuFuncGetAttribute", 2020);
    int threads = 0, shared = -1;
    CHECK(attribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function) == CUDA_SUCCESS);
    CHECK(attribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) == CUDA_SUCCESS);
    CHECK(threads == 1024);
    CHECK(shared == 0);
    CHECK(kernels.launch(function, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK(kernels.module_unload(module) == CUDA_SUCCESS);
}

TEST_CASE("an instantiation that fails tells so in its parameters") {
    const Kernels kernels;
    if (!cu().simulated()) {
        return; // with an output missing, a real driver need not write the others
    }
    const Device device;
    const auto create = cu().optional<decltype(&::cuGraphCreate)>("cuGraphCreate", 10000);
    const auto instantiate = cu().optional<decltype(&::cuGraphInstantiateWithParams)>(
        "cuGraphInstantiateWithParams", 12000);
    REQUIRE((create && instantiate));
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {};
    REQUIRE(create(&graph, 0) == CUDA_SUCCESS);
    CHECK(instantiate(nullptr, graph, &parameters) == CUDA_ERROR_INVALID_VALUE);
    CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_ERROR);
    CHECK(instantiate(&executable, graph, &parameters) == CUDA_SUCCESS);
    CHECK(parameters.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
    CHECK(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
}
