#include "driver/library.h"

#include "dl/home.h"
#include "dl/load.h"
#include "dl/trust.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/program_code.h"

#include <atomic>
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emm::driver {
namespace {

constexpr const char *soname = "libcuda.so.1";

// The simulated driver identifies itself by an entry of its own.
constexpr const char *simulator_mark = "simcuda_get_counters";

// The interposer of `emm run` has the driver's name. This entry identifies the interposer, and
// tells which driver is behind it.
constexpr const char *interposer_mark = "emm_run_driver_library";

std::string real_path(void *handle) {
    link_map *map = nullptr;
    return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : soname;
}

std::string simulator_path() {
    const dl::Home &home = dl::home();
    if (home.build_tree) {
        return home.folder + "/../tools/simcuda/" + soname;
    }
    const std::string beside = home.folder + "/emm/sim/" + soname;
    return access(beside.c_str(), F_OK) == 0 ? beside
                                             : std::string(EMM_PLUGIN_DIR "/sim/") + soname;
}

emm_status refuse(const std::string &wanted, const std::string &why) {
    return observe::fail(EMM_E_NO_DRIVER, 0, "no CUDA driver: {}: {}", wanted, why);
}

// The library that EMM_DRIVER names is loaded by the rules for plugins.
emm_status check_file(const std::string &wanted) {
    std::string lifted;
    const std::string refusal =
        dl::refusal_of(wanted, geteuid(), observe::setting("EMM_ALLOW_UNTRUSTED") == "1", lifted);
    if (!lifted.empty()) {
        observe::log(EMM_LOG_WARN, "driver {}: {}; loaded because EMM_ALLOW_UNTRUSTED=1", wanted,
                     lifted);
    }
    return refusal.empty() ? EMM_OK : refuse(wanted, refusal);
}

bool same_file(const std::string &a, const std::string &b) {
    struct stat left, right;
    return a == b || (stat(a.c_str(), &left) == 0 && stat(b.c_str(), &right) == 0 &&
                      left.st_dev == right.st_dev && left.st_ino == right.st_ino);
}

emm_status wanted_path(std::string &ret_path) {
    const std::string_view wanted = observe::environment("EMM_DRIVER");
    if (wanted == "sim") {
        ret_path = simulator_path();
    } else if (wanted.empty()) {
        ret_path = soname;
    } else if (wanted.front() == '/') {
        ret_path = wanted;
    } else {
        return observe::fail(EMM_E_NO_DRIVER, 0,
                             "EMM_DRIVER: expected 'sim' or an absolute path, found '{}'", wanted);
    }
    return EMM_OK;
}

// The libcuda.so.1 that the process has loaded, else NULL.
void *loaded_library() noexcept {
    return dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
}

std::atomic<void *> came_with_plugin{nullptr};

// A process has one CUDA driver: the one loaded already is the application's.
bool take_loaded(Library &library, const std::string &wanted) {
    void *const found = loaded_library();
    if (!found || found == came_with_plugin.load()) {
        return false;
    }
    void *const interposer = dlsym(found, interposer_mark);
    library.handle = interposer ? reinterpret_cast<void *(*)()>(interposer)() : found;
    if (!library.handle) {
        return false;
    }
    observe::exchange_depth =
        reinterpret_cast<observe::ExchangeDepth>(dlsym(found, observe::exchange_depth_name));
    const std::string path = real_path(library.handle);
    if (wanted != soname && !same_file(path, wanted)) {
        observe::log(EMM_LOG_WARN, "EMM_DRIVER={1} is ignored: the process has loaded {0} already",
                     path, observe::environment("EMM_DRIVER"));
    }
    return true;
}

// The interposer has the driver's name, so it would be opened as the driver.
bool is_interposer_alone() {
    void *const found = loaded_library();
    return found && dlsym(found, interposer_mark);
}

const char *advice_for(const std::string &wanted) {
    if (wanted == soname) {
        return "EMM_DRIVER=sim chooses the simulated driver";
    }
    return observe::environment("EMM_DRIVER") == "sim"
               ? "EMM_DRIVER=sim names the simulated driver, which was not built or not installed"
               : "EMM_DRIVER names it; EMM_DRIVER=sim chooses the simulated driver";
}

} // namespace

PluginLoading::PluginLoading() noexcept : before_(loaded_library()) {}

PluginLoading::~PluginLoading() {
    void *const now = before_ ? nullptr : loaded_library();
    if (now) {
        came_with_plugin.store(now);
    }
}

emm_function Library::entry(const char *name, int cuda_version) const noexcept {
    using GetProcAddress = CUresult (*)(const char *, void **, int, cuuint64_t, void *);
    void *found = nullptr;
    int answer = 0; // CUdriverProcAddressQueryResult
    const CUresult result = reinterpret_cast<GetProcAddress>(get_proc_address)(
        name, &found, cuda_version, CU_GET_PROC_ADDRESS_DEFAULT, &answer);
    return result == CUDA_SUCCESS ? reinterpret_cast<emm_function>(found) : nullptr;
}

std::string Library::complaint() const {
    void *const found = simulated ? dlsym(handle, "simcuda_complaint") : nullptr;
    return found ? reinterpret_cast<const char *(*)()>(found)() : "";
}

emm_status open_library(Library &ret_library) {
    Library library;
    std::string wanted;
    EMM_TRY(wanted_path(wanted));
    if (!take_loaded(library, wanted)) {
        if (wanted == soname && is_interposer_alone()) {
            return observe::fail(EMM_E_NO_DRIVER, 0, "no CUDA driver: the system has no {} ({})",
                                 soname, advice_for(wanted));
        }
        if (wanted != soname) {
            EMM_TRY(check_file(wanted));
        }
        library.handle = dl::load_library(wanted, "driver " + wanted);
    }
    if (!library.handle) {
        const char *why = dlerror();
        return observe::fail(EMM_E_NO_DRIVER, 0, "no CUDA driver: {} ({})",
                             why ? why : wanted.c_str(), advice_for(wanted));
    }
    library.path = real_path(library.handle);
    library.simulated = dlsym(library.handle, simulator_mark) != nullptr;
    library.get_proc_address = dlsym(library.handle, "cuGetProcAddress_v2");
    if (!library.get_proc_address) {
        return observe::fail(EMM_E_NO_DRIVER, 0,
                             library.path +
                                 " has no cuGetProcAddress_v2; expected a driver for CUDA 12.0 "
                                 "or later");
    }
    ret_library = library;
    return EMM_OK;
}

} // namespace emm::driver
