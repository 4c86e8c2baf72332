// Kernels that do nothing, with kernels=none: modules load and have every function, and a launch
// takes its place in the order of its stream.
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

void load(Context *context, const void *image, CUmodule *ret_module) {
    expect(ret_module && image);
    expect(is_image(image), CUDA_ERROR_INVALID_IMAGE);
    static bool told = false;
    if (!told) {
        told = true;
        fprintf(stderr, "simcuda: kernels=none: kernels are loaded and launched, and do nothing\n");
    }
    *ret_module = sim().modules.insert(new Module{context, {}});
}

Module &find_module(CUmodule handle) {
    return find_object(sim().modules, handle, "module or library");
}

void check_function(CUfunction handle) {
    expect(handle, CUDA_ERROR_INVALID_HANDLE);
    find_object(sim().functions, handle, "function");
}

void unload(CUmodule handle) {
    for (const auto &[name, function] : find_module(handle).functions) {
        sim().functions.destroy(function);
    }
    sim().modules.destroy(handle);
}

void get_function(CUmodule handle, const char *name, CUfunction *ret_function) {
    Module &module = find_module(handle);
    expect(ret_function && name);
    const auto [entry, fresh] = module.functions.try_emplace(name, nullptr);
    if (fresh) {
        entry->second = sim().functions.insert(new Function);
    }
    *ret_function = entry->second;
}

void check_file(const char *name) {
    expect(name);
    expect(access(name, R_OK) == 0, CUDA_ERROR_FILE_NOT_FOUND);
}

// Stands for the content of any file.
constexpr const char *some_image = ".version";

} // namespace

void end_modules(const Context &context) {
    for (const CUmodule handle :
         sim().modules.of([&](const Module &module) { return module.context == &context; })) {
        unload(handle);
    }
}

void api::module_load_data(CUmodule *module, const void *image) {
    load(&current_root(), image, module);
}

void api::module_load_data_ex(CUmodule *module, const void *image, unsigned int, CUjit_option *,
                              void **) {
    module_load_data(module, image);
}

void api::module_load(CUmodule *module, const char *fname) {
    check_file(fname);
    module_load_data(module, some_image);
}

void api::module_unload(CUmodule hmod) {
    unload(hmod);
}

void api::module_get_function(CUfunction *hfunc, CUmodule hmod, const char *name) {
    get_function(hmod, name, hfunc);
}

void api::library_load_data(CUlibrary *library, const void *code, CUjit_option *, void **,
                            unsigned int, CUlibraryOption *, void **, unsigned int) {
    load(nullptr, code, reinterpret_cast<CUmodule *>(library));
}

void api::library_load_from_file(CUlibrary *library, const char *file_name, CUjit_option *, void **,
                                 unsigned int, CUlibraryOption *, void **, unsigned int) {
    check_file(file_name);
    load(nullptr, some_image, reinterpret_cast<CUmodule *>(library));
}

void api::library_unload(CUlibrary library) {
    module_unload(reinterpret_cast<CUmodule>(library));
}

void api::library_get_kernel(CUkernel *p_kernel, CUlibrary library, const char *name) {
    get_function(reinterpret_cast<CUmodule>(library), name,
                 reinterpret_cast<CUfunction *>(p_kernel));
}

// A kernel may stand where a function is expected.
void api::kernel_get_function(CUfunction *p_func, CUkernel kernel) {
    current_root();
    check_function(reinterpret_cast<CUfunction>(kernel));
    tell(p_func, reinterpret_cast<CUfunction>(kernel));
}

// The attributes of an empty kernel, built for this device: it needs no resources.
void api::func_get_attribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    check_function(hfunc);
    expect(pi && attrib >= 0 && attrib < CU_FUNC_ATTRIBUTE_MAX);
    const bool is_version =
        attrib == CU_FUNC_ATTRIBUTE_PTX_VERSION || attrib == CU_FUNC_ATTRIBUTE_BINARY_VERSION;
    int major = 0, minor = 0;
    if (is_version) {
        device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
        device_get_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    }
    *pi = 10 * major + minor;
    if (attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
        device_get_attribute(pi, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0);
    }
}

void api::kernel_get_attribute(int *pi, CUfunction_attribute attrib, CUkernel kernel,
                               CUdevice dev) {
    find_device(dev);
    func_get_attribute(pi, attrib, reinterpret_cast<CUfunction>(kernel));
}

void api::launch_kernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y,
                        unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y,
                        unsigned int block_dim_z, unsigned int, CUstream h_stream,
                        void **kernel_params, void **extra) {
    check_function(f);
    expect(grid_dim_x && grid_dim_y && grid_dim_z && block_dim_x && block_dim_y && block_dim_z &&
           !(kernel_params && extra));
    enqueue_nothing(h_stream);
}

void api::launch_kernel_ex(const CUlaunchConfig *config, CUfunction f, void **kernel_params,
                           void **extra) {
    expect(config);
    launch_kernel(f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                  config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream,
                  kernel_params, extra);
}

void api::graph_instantiate_with_params(CUgraphExec *ph_graph_exec, CUgraph h_graph,
                                        CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params) {
    expect(instantiate_params);
    const CUresult result =
        result_of([&] { graph_instantiate(ph_graph_exec, h_graph, instantiate_params->flags); });
    instantiate_params->hErrNode_out = nullptr;
    instantiate_params->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    expect_success(result);
}

} // namespace simcuda
