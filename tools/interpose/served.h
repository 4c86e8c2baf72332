// The entries that emm run serves or watches, and the calls between its libraries: the interposer,
// which every program gets; libemm-run, which the interposer opens in programs that use CUDA; and
// the interposer for NVML.
#pragma once

#include "monitor/outside.h"
#include "observe/program_code.h"

#include <stddef.h>
#include <stdint.h>

namespace emm::run {

enum Served {
#define SERVED(name, since, symbol) served_##symbol,
#define SERVED_STREAM(name, since, symbol, variant) served_##symbol, served_##variant,
#include "served.def"
#undef SERVED
#undef SERVED_STREAM
    served_count,
};

using Entry = void (*)();

// An entry for each of Served, in that order; NULL: no entry.
struct Entries {
    Entry at[served_count];
};

// How the program's calls of the entries in held.txt are held (hold.h).
struct HoldCalls {
    // Until end_own, the calling thread's own calls are not held. False: no memory.
    bool (*begin_own)();
    void (*end_own)();
    // Called within begin_own: holds all calls. `timeout` is in nanoseconds. False: a call was
    // still under way after that time, or the process ends; then no call is held.
    bool (*close)(int64_t timeout);
    void (*open)();
    void (*end)();                      // the process ends: held calls fail
    void (*spare)(bool (*is_spared)()); // from now on, calls for which it is true are not held
};

// libemm-run exports this as `emm_run_serve`. It loads the plugin, takes the driver's own entries
// and gives those that take their place; NULL leaves an entry to the driver. `hold` is NULL in a
// process that was not started with --pausable. False: `ret_problem` has one sentence, cut to
// `size` bytes.
using Serve = bool (*)(const Entries *driver, Entries *ret_serving, const HoldCalls *hold,
                       char *ret_problem, size_t size);
constexpr const char serve_name[] = "emm_run_serve";

// libemm-run exports this as `emm_run_check_driver`. It says whether the driver at the absolute
// path that EMM_DRIVER names may be loaded. False: `ret_problem` as above.
using CheckDriver = bool (*)(const char *path, char *ret_problem, size_t size);
constexpr const char check_driver_name[] = "emm_run_check_driver";

// The program's share of a device's memory, in bytes.
struct Figures {
    unsigned long long total, free;
    bool has_context; // no: no context is served there yet, and only `free` holds
};

// libemm-run exports this as `emm_run_figures`, and so does the interposer, which passes the call
// on once a plugin serves. Gives the figures of the device with that UUID (16 bytes). False: the
// device's own figures hold, because the program may have all of it, does not use CUDA, or does not
// see the device.
using TellFigures = bool (*)(const unsigned char *uuid, Figures *ret_figures);
constexpr const char figures_name[] = "emm_run_figures";

} // namespace emm::run
