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

// The file of the code at an address.
struct Code {
    uintptr_t address = 0;
    std::string_view path = {};
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
    Code &code = *static_cast<Code *>(state);
    const bool is_found = has_address(*library, code.address);
    code.path = is_found ? library->dlpi_name : code.path;
    return is_found;
}

// dladdr is not used, because it would wait for a dlopen of another thread, with all that it
// initializes.
std::string_view path_of_call(_Unwind_Context *context) {
    Code code{_Unwind_GetIP(context)};
    dl_iterate_phdr(&find_library, &code);
    return code.path;
}

// Stops at the answer: greenlets overwrite each other's outer frames.
_Unwind_Reason_Code find_caller(_Unwind_Context *context, void *state) {
    Library &library = *static_cast<Library *>(state);
    library = library_at(path_of_call(context));
    return library == Library::passing ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// Stops at a frame of the greenlet library: frames behind a greenlet's outermost one are garbage.
_Unwind_Reason_Code find_plugin(_Unwind_Context *context, void *state) {
    bool &is_found = *static_cast<bool *>(state);
    const std::vector<std::string> &paths = plugin_paths();
    const std::string_view path = path_of_call(context);
    is_found = std::count(paths.begin(), paths.end(), path) != 0;
    const bool ends = is_found || path.find("/greenlet/") != path.npos;
    return ends ? _URC_END_OF_STACK : _URC_NO_REASON;
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
    Library caller = Library::other;
    _Unwind_Backtrace(&find_caller, &caller);
    return caller == Library::torch  ? torch_cache
           : caller == Library::cupy ? cupy_cache
                                     : no_caches;
}

bool is_plugins_call() {
    bool is_found = false;
    if (!plugin_paths().empty()) {
        _Unwind_Backtrace(&find_plugin, &is_found);
    }
    return is_found;
}

} // namespace emm::run
