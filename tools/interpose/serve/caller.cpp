#include "caller.h"

#include <cstdint>
#include <iterator>
#include <link.h>
#include <unwind.h>

namespace emm::run {
namespace {

bool begins_with(std::string_view text, std::string_view beginning) {
    return text.substr(0, beginning.size()) == beginning;
}

// The innermost calls of the thread's stack, each with the library that its code is in.
struct Stack {
    uintptr_t address[32];
    Library library[32];
    size_t depth = 0;
};

_Unwind_Reason_Code add_call(_Unwind_Context *context, void *state) {
    Stack &stack = *static_cast<Stack *>(state);
    stack.address[stack.depth] = _Unwind_GetIP(context);
    stack.library[stack.depth] = Library::other;
    return ++stack.depth < std::size(stack.address) ? _URC_NO_REASON : _URC_END_OF_STACK;
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

int mark_calls(dl_phdr_info *library, size_t, void *state) {
    Stack &stack = *static_cast<Stack *>(state);
    for (size_t i = 0; i < stack.depth; i++) {
        if (has_address(*library, stack.address[i])) {
            stack.library[i] = library_at(library->dlpi_name);
        }
    }
    return 0;
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

// dladdr would wait for a dlopen of another thread, with all that it initializes.
Caches cache_of_caller() {
    Stack stack;
    _Unwind_Backtrace(&add_call, &stack);
    dl_iterate_phdr(&mark_calls, &stack);
    for (size_t i = 0; i < stack.depth; i++) {
        if (stack.library[i] != Library::passing) {
            return stack.library[i] == Library::torch  ? torch_cache
                   : stack.library[i] == Library::cupy ? cupy_cache
                                                       : no_caches;
        }
    }
    return no_caches;
}

} // namespace emm::run
