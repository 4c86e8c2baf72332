// Kernels that do nothing, with kernels=none: modules load, have every function, and a launch takes
// its place in the order of its stream.
#include "call.h"
#include "simulator.h"

#include <cctype>
#include <cstring>
#include <unistd.h>

namespace simcuda {
namespace {

// A cubin, a fat binary, its wrapper, or the text of PTX.
bool is_image(const void *bytes) {
    uint32_t magic = 0;
    const auto *text = static_cast<const char *>(bytes);
    memcpy(&magic, bytes, strnlen(text, sizeof magic)); // PTX may be shorter
    while (isspace(static_cast<unsigned char>(*text)) != 0) {
        ++text;
    }
    return magic == 0x464c457f || magic == 0xba55ed50 || magic == 0x466243b1 || *text == '.' ||
           (text[0] == '/' && (text[1] == '/' || text[1] == '*'));
}

CUresult load(Context *context, const void *image, CUmodule *ret_module) {
    expect(ret_module && image);
    expect(is_image(image), CUDA_ERROR_INVALID_IMAGE);
    static bool told = false;
    if (!told) {
        told = true;
        fprintf(stderr, "simcuda: kernels=none: kernels are loaded and launched, and do nothing\n");
    }
    *ret_module = sim().modules.insert(new Module{context, {}});
    return CUDA_SUCCESS;
}

CUresult find_module(CUmodule handle, Module *&ret_module) {
    return find_object(sim().modules, handle, "module or library", ret_module);
}

CUresult find_function(CUfunction handle) {
    Function *function;
    return handle ? find_object(sim().functions, handle, "function", function)
                  : CUDA_ERROR_INVALID_HANDLE;
}

void unload(CUmodule handle) {
    Module *const module = sim().modules.find(handle);
    for (const auto &[name, function] : module->functions) {
        delete sim().functions.find(function);
        sim().functions.erase(function);
    }
    sim().modules.erase(handle);
    delete module;
}

CUresult get_function(CUmodule handle, const char *name, CUfunction *ret_function) {
    Module &module = expect_found(find_module, handle);
    expect(ret_function && name);
    const auto [entry, fresh] = module.functions.try_emplace(name, nullptr);
    if (fresh) {
        entry->second = sim().functions.insert(new Function);
    }
    *ret_function = entry->second;
    return CUDA_SUCCESS;
}

CUresult check_file(const char *name) {
    return !name                     ? CUDA_ERROR_INVALID_VALUE
           : access(name, R_OK) == 0 ? CUDA_SUCCESS
                                     : CUDA_ERROR_FILE_NOT_FOUND;
}

// What stands for the content of a file.
constexpr const char *some_image = ".version";

} // namespace

void end_modules(const Context &context) {
    for (const CUmodule handle :
         sim().modules.of([&](const Module &module) { return module.context == &context; })) {
        unload(handle);
    }
}

CUresult api::module_load_data(CUmodule *module, const void *image) {
    Context &context = expect_found(current_root);
    return load(&context, image, module);
}

CUresult api::module_load_data_ex(CUmodule *module, const void *image, unsigned int, CUjit_option *,
                                  void **) {
    return module_load_data(module, image);
}

CUresult api::module_load(CUmodule *module, const char *fname) {
    expect_success(check_file(fname));
    return module_load_data(module, some_image);
}

CUresult api::module_unload(CUmodule hmod) {
    expect_found(find_module, hmod);
    unload(hmod);
    return CUDA_SUCCESS;
}

CUresult api::module_get_function(CUfunction *hfunc, CUmodule hmod, const char *name) {
    return get_function(hmod, name, hfunc);
}

CUresult api::library_load_data(CUlibrary *library, const void *code, CUjit_option *, void **,
                                unsigned int, CUlibraryOption *, void **, unsigned int) {
    return load(nullptr, code, reinterpret_cast<CUmodule *>(library));
}

CUresult api::library_load_from_file(CUlibrary *library, const char *file_name, CUjit_option *,
                                     void **, unsigned int, CUlibraryOption *, void **,
                                     unsigned int) {
    expect_success(check_file(file_name));
    return load(nullptr, some_image, reinterpret_cast<CUmodule *>(library));
}

CUresult api::library_unload(CUlibrary library) {
    return module_unload(reinterpret_cast<CUmodule>(library));
}

CUresult api::library_get_kernel(CUkernel *p_kernel, CUlibrary library, const char *name) {
    return get_function(reinterpret_cast<CUmodule>(library), name,
                        reinterpret_cast<CUfunction *>(p_kernel));
}

// A kernel may stand where a function is expected.
CUresult api::kernel_get_function(CUfunction *p_func, CUkernel kernel) {
    expect_found(current_root);
    expect_success(find_function(reinterpret_cast<CUfunction>(kernel)));
    expect(p_func);
    *p_func = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
}

// Of an empty kernel, built for this device: it needs nothing.
CUresult api::func_get_attribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    expect_success(find_function(hfunc));
    expect(pi && attrib >= 0 && attrib < CU_FUNC_ATTRIBUTE_MAX);
    const bool is_version =
        attrib == CU_FUNC_ATTRIBUTE_PTX_VERSION || attrib == CU_FUNC_ATTRIBUTE_BINARY_VERSION;
    int major = 0, minor = 0;
    if (is_version) {
        device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
        device_get_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    }
    *pi = 10 * major + minor;
    return attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
               ? device_get_attribute(pi, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0)
               : CUDA_SUCCESS;
}

CUresult api::kernel_get_attribute(int *pi, CUfunction_attribute attrib, CUkernel kernel,
                                   CUdevice dev) {
    expect_found(find_device, dev);
    return func_get_attribute(pi, attrib, reinterpret_cast<CUfunction>(kernel));
}

CUresult api::launch_kernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                            unsigned int grid_dim_z, unsigned int block_dim_x,
                            unsigned int block_dim_y, unsigned int block_dim_z, unsigned int,
                            CUstream h_stream, void **kernel_params, void **extra) {
    expect_success(find_function(f));
    expect(grid_dim_x && grid_dim_y && grid_dim_z && block_dim_x && block_dim_y && block_dim_z &&
           !(kernel_params && extra));
    return enqueue_nothing(h_stream);
}

CUresult api::launch_kernel_ex(const CUlaunchConfig *config, CUfunction f, void **kernel_params,
                               void **extra) {
    expect(config);
    return launch_kernel(f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                         config->blockDimY, config->blockDimZ, config->sharedMemBytes,
                         config->hStream, kernel_params, extra);
}

CUresult api::graph_instantiate_with_params(CUgraphExec *ph_graph_exec, CUgraph h_graph,
                                            CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params) {
    expect(instantiate_params);
    const CUresult result = result_of(
        [&] { return graph_instantiate(ph_graph_exec, h_graph, instantiate_params->flags); });
    instantiate_params->hErrNode_out = nullptr;
    instantiate_params->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

} // namespace simcuda
