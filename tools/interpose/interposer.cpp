// The interposer: a library that the process takes for libcuda. Its entries are in trampolines.S.
// The first call finds the driver; cuInit opens libemm-run, which takes over the entries of
// served.def. Before, the interposer only registers for fences, so that a shell is undisturbed. It
// needs libc only: a missing dependency of a preloaded library ends every program.
#include "binding.h"
#include "bypass.h"
#include "environment.h"
#include "held.h"
#include "hold.h"
#include "library_file.h"
#include "proc_address.h"
#include "say.h"
#include "served.h"

#include <dlfcn.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// In trampolines.S: the entries themselves.
extern "C" {
extern const emm::run::Entry emm_run_entries[];
}

namespace emm::run {
namespace {

// CUresult
constexpr int success = 0, no_device = 100, library_failed = 303, not_supported = 801;

constexpr uint64_t per_thread_flag = 2; // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

constexpr const char *names[] = {
#define ENTRY(name, index) #name,
#define ENTRY_COUNT(count)
#include "entries.inc"
#undef ENTRY
#undef ENTRY_COUNT
};
constexpr size_t entry_count = sizeof names / sizeof *names;

using Init = int (*)(unsigned);
using GetProcAddress = int (*)(const char *, void **, int, uint64_t);
using GetProcAddressV2 = int (*)(const char *, void **, int, uint64_t, int *);

void *library = nullptr;           // the driver
Entries driver;                    // its entries, of the served ones
Path own_file;                     // the interposer's
char problem[PATH_MAX + 512] = ""; // why no program can be served

int refuse_all() {
    return library_failed;
}

int have_none() {
    return no_device;
}

int have_no_such_entry() {
    return not_supported;
}

// entry_count: no entry has that name.
size_t index_of(const char *name) {
    size_t index = 0;
    while (index < entry_count && strcmp(names[index], name) != 0) {
        index++;
    }
    return index;
}

// --- calls that are held while the process is paused
// -----------------------------------------------------

bool is_pausable = false;  // as the process was started
Entry *exported = nullptr; // the driver's held entries, by their places; only if pausable

// Runs before the program has a thread of its own.
__attribute__((constructor)) void start_hold() {
    if (has_option(getenv("EMM_RUN"), "pausable") && hold::start()) {
        exported = static_cast<Entry *>(calloc(held_count(), sizeof *exported));
        is_pausable = exported != nullptr;
    }
}

size_t held_if_pausable(const char *symbol) {
    return is_pausable ? held_by_symbol(symbol) : held_count();
}

// Sets the entry's target, or, if the target is a wrapper, the function behind the wrapper.
void set_entry(size_t index, Entry entry) {
    const size_t held = held_if_pausable(names[index]);
    if (held != held_count()) {
        set_behind(held, entry);
        entry = wrapper_of(held);
    }
    __atomic_store_n(&emm_run_targets[index], entry, __ATOMIC_RELEASE);
}

// The wrapper of a function that the driver has found, if its entry is held; else the function
// itself. The driver gives the same pointers as it exports.
void *wrapped(void *found) {
    for (size_t held = 0; is_pausable && held < held_count(); held++) {
        if (reinterpret_cast<void *>(exported[held]) == found) {
            return reinterpret_cast<void *>(wrapper_of(held));
        }
    }
    return found;
}

void set_target(Served served, Entry entry) {
    const size_t index = index_of(symbol_of(served));
    if (index < entry_count && entry) {
        set_entry(index, entry);
    }
}

// --- the driver --------------------------------------------------------------------------------

bool find_simulated(Path &ret_path) {
    return (beside(own_file, "../sim/libcuda.so.1", ret_path) &&
            access(ret_path.text, R_OK) == 0) ||
           (beside(own_file, "../simcuda/libcuda.so.1", ret_path) &&
            access(ret_path.text, R_OK) == 0);
}

// libemm-run has libstdc++ inside, which takes a reserve for exceptions when it is opened. Without
// the reserve and without memory, an exception would end the process.
bool has_room_for_exceptions() {
    constexpr size_t reserve = 96 * 1024; // of libstdc++ 73 KiB
    void *const volatile room = malloc(reserve);
    free(room);
    return room;
}

// A function of libemm-run's; NULL: `problem` says why.
void *find_in_serving(const char *name) {
    Path path;
    if (!beside(own_file, "libemm-run.so", path)) {
        return nullptr;
    }
    void *const opened = dlopen(path.text, RTLD_NOW | RTLD_LOCAL);
    if (opened && !has_room_for_exceptions()) {
        snprintf(problem, sizeof problem, "no host memory for %s", path.text);
        return nullptr;
    }
    void *const found = opened ? dlsym(opened, name) : nullptr;
    if (!found) {
        const char *const why = dlerror();
        snprintf(problem, sizeof problem, "%s", why ? why : path.text);
    }
    return found;
}

// Applies the rules for plugins before any code of the driver runs. The check needs more than libc.
bool may_be_loaded(const Path &path) {
    const auto check = reinterpret_cast<CheckDriver>(find_in_serving(check_driver_name));
    return check && check(path.text, problem, sizeof problem);
}

// False: `problem` says why.
bool choose_driver(Path &ret_path) {
    const char *const wanted = getenv("EMM_DRIVER");
    if (!wanted || !*wanted) {
        if (!find_library("libcuda.so.1", own_file, ret_path)) {
            snprintf(problem, sizeof problem,
                     "no CUDA driver: the system has no libcuda.so.1; EMM_DRIVER=sim chooses the "
                     "simulated one");
            return false;
        }
    } else if (strcmp(wanted, "sim") == 0) {
        if (!find_simulated(ret_path)) {
            snprintf(problem, sizeof problem,
                     "EMM_DRIVER=sim: the simulated driver was not built or not installed");
            return false;
        }
    } else if (*wanted != '/' || strlen(wanted) >= sizeof ret_path.text) {
        snprintf(problem, sizeof problem,
                 "EMM_DRIVER: expected 'sim' or an absolute path, found '%.200s'", wanted);
        return false;
    } else {
        memcpy(ret_path.text, wanted, strlen(wanted) + 1);
        return may_be_loaded(ret_path);
    }
    return true;
}

// Makes the path FOLDER/./NAME, which the audit library lets pass. A path that is too long stays as
// it is.
void mark_for_audit(Path &path) {
    char *const slash = strrchr(path.text, '/');
    const size_t length = strlen(path.text);
    if (slash && length + 2 < sizeof path.text) {
        memmove(slash + 3, slash + 1, length - size_t(slash - path.text));
        memcpy(slash, "/./", 3);
    }
}

bool open_driver() {
    Path path;
    if (!choose_driver(path)) {
        return false;
    }
    if (getenv("LD_AUDIT")) {
        mark_for_audit(path);
    }
    library = dlopen(path.text, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *const why = dlerror();
        snprintf(problem, sizeof problem, "no CUDA driver: %s", why ? why : path.text);
        return false;
    }
    if (dlsym(library, "emm_run_driver_library")) {
        snprintf(problem, sizeof problem,
                 "no CUDA driver: %s is another emm's interposer, not the driver", path.text);
        return false;
    }
    return true;
}

// --- cuGetProcAddress --------------------------------------------------------------------------

// The driver's own answer. The older entry gives no answer for what it does not find.
void *ask_driver(const char *name, int version, bool per_thread) {
    void *found = nullptr;
    int status = 0;
    const uint64_t flags = per_thread ? per_thread_flag : 0;
    if (const Entry newer = driver.at[served_cuGetProcAddress_v2]) {
        reinterpret_cast<GetProcAddressV2>(newer)(name, &found, version, flags, &status);
    } else {
        reinterpret_cast<GetProcAddress>(driver.at[served_cuGetProcAddress])(name, &found, version,
                                                                             flags);
    }
    return found;
}

void say_not_served(const char *name, int version) {
    static bool said = false;
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) {
        say("emm does not serve %s as of CUDA %d.%d: the program gets the driver's own", name,
            version / 1000, version % 1000 / 10);
    }
}

// Replaces a function that the driver has found by emm's entry in its place.
void replace(const char *name, void **found, int version, uint64_t flags) {
    if (!found || !*found) {
        return;
    }
    const bool per_thread = (flags & per_thread_flag) != 0;
    const Served served =
        served_by_function(*found, name, version, per_thread, driver, &ask_driver);
    if (served != served_count) {
        *found = reinterpret_cast<void *>(emm_run_entries[index_of(symbol_of(served))]);
        return;
    }
    if (served_by_name(name, version, per_thread) != served_count) {
        say_not_served(name, version);
    }
    *found = wrapped(*found);
}

int get_proc_address(const char *name, void **found, int version, uint64_t flags) {
    const int result = reinterpret_cast<GetProcAddress>(driver.at[served_cuGetProcAddress])(
        name, found, version, flags);
    if (result == success) {
        replace(name, found, version, flags);
    }
    return result;
}

int get_proc_address_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    const int result = reinterpret_cast<GetProcAddressV2>(driver.at[served_cuGetProcAddress_v2])(
        name, found, version, flags, status);
    if (result == success) {
        replace(name, found, version, flags);
    }
    return result;
}

// --- cuInit ------------------------------------------------------------------------------------

// A plugin may call cuInit while it is being loaded. The same thread calls, so the lock is
// recursive.
pthread_mutex_t serving_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
enum class Serving { not_yet, starting, on, failed } serving = Serving::not_yet;

TellFigures tell_figures = nullptr;              // once a plugin serves
monitor::AskOutside ask_outside = nullptr;       // likewise
observe::ExchangeDepth exchange_depth = nullptr; // likewise

bool start_serving() {
    const auto serve = reinterpret_cast<Serve>(find_in_serving(serve_name));
    Entries entries = {};
    if (!serve ||
        !serve(&driver, &entries, is_pausable ? &hold::calls : nullptr, problem, sizeof problem)) {
        return false;
    }
    __atomic_store_n(&tell_figures, reinterpret_cast<TellFigures>(find_in_serving(figures_name)),
                     __ATOMIC_RELEASE);
    __atomic_store_n(&ask_outside,
                     reinterpret_cast<monitor::AskOutside>(find_in_serving(monitor::outside_name)),
                     __ATOMIC_RELEASE);
    __atomic_store_n(
        &exchange_depth,
        reinterpret_cast<observe::ExchangeDepth>(find_in_serving(observe::exchange_depth_name)),
        __ATOMIC_RELEASE);
    for (int i = 0; i < served_count; i++) {
        if (driver.at[i]) {
            set_target(Served(i), entries.at[i]);
        }
    }
    return true;
}

// A program that goes on after a failure gets no memory from the driver either.
void refuse_served() {
    for (int i = 0; i < served_count; i++) {
        if (i != served_cuInit && i != served_cuGetProcAddress && i != served_cuGetProcAddress_v2) {
            set_target(Served(i), reinterpret_cast<Entry>(&refuse_all));
        }
    }
}

int init(unsigned flags) {
    const int result = reinterpret_cast<Init>(driver.at[served_cuInit])(flags);
    if (result != success) {
        return result;
    }
    pthread_mutex_lock(&serving_lock);
    if (serving == Serving::not_yet) {
        serving = Serving::starting;
        serving = start_serving() ? Serving::on : Serving::failed;
        if (serving == Serving::failed) {
            refuse_served();
            say("%s", problem);
        }
    }
    const bool failed = serving == Serving::failed;
    pthread_mutex_unlock(&serving_lock);
    return failed ? library_failed : success;
}

int init_without_driver(unsigned) {
    static bool said = false;
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) {
        say("%s", problem);
    }
    return no_device;
}

// --- the first call ----------------------------------------------------------------------------

void find_own_file() {
    find_file_of(reinterpret_cast<void *>(&find_own_file), own_file);
}

} // namespace

void bind_all() {
    find_own_file();
    const bool opened = open_driver();
    for (size_t i = 0; i < entry_count; i++) {
        const auto found = opened ? reinterpret_cast<Entry>(dlsym(library, names[i])) : nullptr;
        const auto missing = reinterpret_cast<Entry>(opened ? &have_no_such_entry : &have_none);
        const size_t held = held_if_pausable(names[i]);
        if (held != held_count()) {
            exported[held] = found;
        }
        set_entry(i, found ? found : missing);
        const Served served = served_by_symbol(names[i]);
        if (served != served_count) {
            driver.at[served] = found;
        }
    }
    set_target(served_cuInit, reinterpret_cast<Entry>(opened ? &init : &init_without_driver));
    if (opened) {
        set_target(served_cuGetProcAddress, reinterpret_cast<Entry>(&get_proc_address));
        set_target(served_cuGetProcAddress_v2, reinterpret_cast<Entry>(&get_proc_address_v2));
    }
}

namespace {

// A program that has a driver loaded and never called the interposer has run without emm.
__attribute__((destructor)) void report_bypass() {
    if (is_bound()) {
        return;
    }
    find_own_file();
    if (const char *const path = find_driver_beside(own_file.text)) {
        say("this program ran without emm: it opened the driver by its path, %s; --audit redirects "
            "it to emm",
            path);
    }
}

// --- fences ------------------------------------------------------------------------------------

// The pool needs membarrier. Registration takes a microsecond while the process has one thread
// (/proc/self/task then has three links), and 6 to 25 ms later.
__attribute__((constructor)) void register_for_fences() {
    struct stat threads = {};
    if (stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 3) {
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    }
}

// --- children ----------------------------------------------------------------------------------

// Takes the item out of the variable, and unsets a variable that has no other items.
void remove_from(const char *variable, const char *item, const char *separators) {
    const char *const list = getenv(variable);
    char *const rest = list ? static_cast<char *>(malloc(strlen(list) + 1)) : nullptr;
    if (rest && without_item(list, item, separators, rest)) {
        *rest ? setenv(variable, rest, 1) : unsetenv(variable);
    }
    free(rest);
}

// With `no-children` in EMM_RUN, this program's children do not get the interposer.
__attribute__((constructor)) void leave_children_alone() {
    Path path;
    if (!has_option(getenv("EMM_RUN"), "no-children")) {
        return;
    }
    find_own_file();
    remove_from("LD_PRELOAD", own_file.text, ": ");
    if (beside(own_file, "libemm-audit.so", path)) {
        remove_from("LD_AUDIT", path.text, ":");
    }
    if (char *const slash = strrchr(own_file.text, '/')) {
        *slash = 0;
        remove_from("LD_LIBRARY_PATH", own_file.text, ":;");
        *slash = '/';
    }
}

} // namespace

// For libemm: the driver behind the interposer, as dlopen gives it; NULL: there is no driver.
extern "C" __attribute__((visibility("default"))) void *emm_run_driver_library() {
    bind_once();
    return library;
}

// The interposer for NVML asks.
extern "C" __attribute__((visibility("default"))) bool emm_run_figures(const unsigned char *uuid,
                                                                       Figures *ret_figures) {
    const TellFigures tell = __atomic_load_n(&tell_figures, __ATOMIC_ACQUIRE);
    return tell && tell(uuid, ret_figures);
}

// libemm asks.
extern "C" __attribute__((visibility("default"))) bool emm_run_outside(monitor::Outside *outside) {
    const monitor::AskOutside ask = __atomic_load_n(&ask_outside, __ATOMIC_ACQUIRE);
    if (is_pausable && ask) {
        return ask(outside);
    }
    snprintf(outside->problem, sizeof outside->problem, "its calls cannot be held: %s",
             is_pausable ? "it has not called cuInit yet"
                         : "it was started without emm run --pausable");
    return false;
}

// libemm asks, around code of the program. Before cuInit no call is served.
extern "C" __attribute__((visibility("default"))) int emm_run_exchange_depth(int depth) {
    const observe::ExchangeDepth exchange = __atomic_load_n(&exchange_depth, __ATOMIC_ACQUIRE);
    return exchange ? exchange(depth) : 0;
}

} // namespace emm::run
