#include "caller.h"

#include "result.h"

#include <algorithm>
#include <cstdint>
#include <link.h>
#include <string>
#include <unwind.h>
#include <vector>

namespace emm::run {
namespace {

bool begins_with(std::string_view text, std::string_view beginning) {
    return text.substr(0, beginning.size()) == beginning;
}

// One call of the thread's stack, and the file of its code.
struct Call {
    uintptr_t address = 0;
    Library library = Library::other;
    bool is_plugins = false;
};

// The paths of the plugin that serves, and of the layers over it, as the dynamic linker knows them.
const std::vector<std::string> &plugin_paths() {
    static const std::vector<std::string> paths = [] {
        std::vector<std::string> found;
        auto info = sized<emm_plugin_info>();
        if (emm_get_plugin(&info) >= 0) {
            found.push_back(info.path ? info.path : "");
            for (auto each = info.layers; each && *each; each++) {
                found.push_back((*each)->path ? (*each)->path : "");
            }
        }
        std::erase(found, "");
        return found;
    }();
    return paths;
}

bool has_address(const dl_phdr_info &library, uintptr_t address) {
    for (int i = 0; i < library.dlpi_phnum; i++) {
        const ElfW(Phdr) &segment = library.dlpi_phdr[i];
        if (segment.p_type == PT_LOAD &&
            address - library.dlpi_addr - segment.p_vaddr < segment.p_memsz) {
            return true;
        }
    }
    return false;
}

int find_library(dl_phdr_info *library, size_t, void *state) {
    Call &call = *static_cast<Call *>(state);
    if (!has_address(*library, call.address)) {
        return 0;
    }
    call.library = library_at(library->dlpi_name);
    call.is_plugins = std::count(plugin_paths().begin(), plugin_paths().end(),
                                 std::string_view(library->dlpi_name)) != 0;
    return 1;
}

// Stops at the answer: greenlets overwrite each other's outer frames. dladdr is not used, because
// it would wait for a dlopen of another thread, with all that it initializes.
_Unwind_Reason_Code look_at_call(_Unwind_Context *context, void *state) {
    Call &call = *static_cast<Call *>(state);
    call = {_Unwind_GetIP(context)};
    dl_iterate_phdr(&find_library, &call);
    return call.library == Library::passing ? _URC_NO_REASON : _URC_END_OF_STACK;
}

} // namespace

Library library_at(std::string_view path) {
    const size_t slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    if (begins_with(name, "libemm-run.so") || begins_with(name, "libcuda.so") ||
        begins_with(name, "libcudart")) {
        return Library::passing;
    }
    if (begins_with(name, "libc10_cuda.so")) {
        return Library::torch;
    }
    const bool is_cupy =
        path.find("/cupy_backends/") != path.npos || path.find("/cupy/") != path.npos;
    return is_cupy ? Library::cupy : Library::other;
}

Caches cache_of_caller() {
    Call call;
    _Unwind_Backtrace(&look_at_call, &call);
    return call.library == Library::torch  ? torch_cache
           : call.library == Library::cupy ? cupy_cache
                                           : no_caches;
}

bool is_plugins_call() {
    Call call;
    if (plugin_paths().empty()) {
        return false;
    }
    _Unwind_Backtrace(&look_at_call, &call);
    return call.is_plugins;
}

} // namespace emm::run
