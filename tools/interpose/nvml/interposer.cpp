// The interposer for NVML: a library that programs take for libnvidia-ml. Its entries are
// trampolines, as those of the driver's interposer are; the first call finds the library itself.
// Two entries, which tell how much memory a device has, are replaced: they give the figures of the
// driver's interposer, if the plugin limits the memory. It needs libc only.
#include "../binding.h"
#include "../library_file.h"
#include "uuid.h"

#include <dlfcn.h>
#include <string.h>

namespace emm::run {
namespace {

// nvmlReturn_t
constexpr int success = 0, library_not_found = 12, function_not_found = 13;

constexpr const char *names[] = {
#define ENTRY(name, index) #name,
#define ENTRY_COUNT(count)
#include "nvml-entries.inc"
#undef ENTRY
#undef ENTRY_COUNT
};
constexpr size_t entry_count = sizeof names / sizeof *names;

using Device = void *;

// nvmlMemory_t and nvmlMemory_v2_t
struct Memory {
    unsigned long long total, free, used;
};
struct Memory2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

using GetUuid = int (*)(Device, char *text, unsigned size);
using GetMemory = int (*)(Device, Memory *);
using GetMemory2 = int (*)(Device, Memory2 *);

void *library = nullptr; // NVML itself
Path own_file;           // the interposer's

// NVML's own entries that are replaced or called here; NULL: NVML lacks the entry.
GetUuid get_uuid = nullptr;
GetMemory get_memory = nullptr;
GetMemory2 get_memory_2 = nullptr;

int have_no_library() {
    return library_not_found;
}

int have_no_such_function() {
    return function_not_found;
}

// nvmlErrorString gives no status.
const char *error_string(int result) {
    return result == library_not_found    ? "NVML Shared Library Not Found"
           : result == function_not_found ? "Function Not Found"
                                          : "Unknown Error";
}

// --- figures -----------------------------------------------------------------------------------

// The driver's interposer, if the process has it. Loads nothing.
TellFigures teller() {
    static TellFigures found = nullptr;
    if (TellFigures tell = __atomic_load_n(&found, __ATOMIC_ACQUIRE)) {
        return tell;
    }
    Path path;
    void *const driver = beside(own_file, "libcuda.so.1", path)
                             ? dlopen(path.text, RTLD_LAZY | RTLD_NOLOAD)
                             : nullptr;
    if (!driver) {
        return nullptr;
    }
    const auto tell = reinterpret_cast<TellFigures>(dlsym(driver, figures_name));
    dlclose(driver); // the interposer is never unloaded
    __atomic_store_n(&found, tell, __ATOMIC_RELEASE);
    return tell;
}

// Whether the program's share of this device is smaller than the device; `real_free` is NVML's
// figure.
bool is_limited(Device device, unsigned long long real_free, Figures &ret_figures) {
    char text[96] = "";
    unsigned char uuid[uuid_bytes];
    const TellFigures tell = get_uuid ? teller() : nullptr;
    if (!tell || get_uuid(device, text, sizeof text) != success || !read_uuid(text, uuid) ||
        !tell(uuid, &ret_figures)) {
        return false;
    }
    if (!ret_figures.has_context && ret_figures.free > real_free) {
        ret_figures.free = real_free;
    }
    return true;
}

int memory_info(Device device, Memory *ret_memory) {
    Figures figures;
    const int result = get_memory(device, ret_memory);
    if (result == success && is_limited(device, ret_memory->free, figures)) {
        *ret_memory = {figures.total, figures.free, figures.total - figures.free};
    }
    return result;
}

int memory_info_2(Device device, Memory2 *ret_memory) {
    Figures figures;
    const int result = get_memory_2(device, ret_memory);
    if (result == success && is_limited(device, ret_memory->free, figures)) {
        *ret_memory = {ret_memory->version, figures.total, 0, figures.free,
                       figures.total - figures.free};
    }
    return result;
}

// --- the first call ----------------------------------------------------------------------------

// Does not open another emm's interposer, which would look for this one in its turn.
void *open_library() {
    Path path;
    void *const opened = find_library("libnvidia-ml.so.1", own_file, path)
                             ? dlopen(path.text, RTLD_NOW | RTLD_LOCAL)
                             : nullptr;
    return opened && !dlsym(opened, "emm_run_nvml_library") ? opened : nullptr;
}

Entry substitute_for(const char *name) {
    const bool is_text = strcmp(name, "nvmlErrorString") == 0;
    return is_text   ? reinterpret_cast<Entry>(&error_string)
           : library ? reinterpret_cast<Entry>(&have_no_such_function)
                     : reinterpret_cast<Entry>(&have_no_library);
}

// Replaces a found entry, and keeps NVML's own.
template <class Function> Entry replaced(Entry found, Function &ret_own, Function replacement) {
    ret_own = reinterpret_cast<Function>(found);
    return reinterpret_cast<Entry>(replacement);
}

Entry target_of(const char *name) {
    const auto found = library ? reinterpret_cast<Entry>(dlsym(library, name)) : nullptr;
    if (!found) {
        return substitute_for(name);
    }
    return strcmp(name, "nvmlDeviceGetMemoryInfo") == 0 ? replaced(found, get_memory, &memory_info)
           : strcmp(name, "nvmlDeviceGetMemoryInfo_v2") == 0
               ? replaced(found, get_memory_2, &memory_info_2)
               : found;
}

} // namespace

void bind_all() {
    find_file_of(reinterpret_cast<void *>(&bind_all), own_file);
    library = open_library();
    if (library) {
        get_uuid = reinterpret_cast<GetUuid>(dlsym(library, "nvmlDeviceGetUUID"));
    }
    for (size_t i = 0; i < entry_count; i++) {
        __atomic_store_n(&emm_run_targets[i], target_of(names[i]), __ATOMIC_RELEASE);
    }
}

// NVML itself, as dlopen gives it; NULL: there is no NVML.
extern "C" __attribute__((visibility("default"))) void *emm_run_nvml_library() {
    bind_once();
    return library;
}

} // namespace emm::run
