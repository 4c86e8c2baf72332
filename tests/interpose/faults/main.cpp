// driver-faults [WORKLOAD...]: a program on the driver API with the interposer between, in which
// each driver call that a served entry makes fails in turn: once, and from there on. After each
// failure the program has got an answer that CUDA knows, may give back what it has, is served as
// before, and nothing is left. Then the same for cuInit, where emm begins to serve. Each workload,
// and each start, has a process of its own. EMM_DRIVER names the simulated driver.
#include "pass.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace faults;

namespace {

constexpr unsigned most = 3000;       // failures in one loop: with more, the loop does not end
constexpr unsigned most_seconds = 60; // of a pass

// The report of a process to the one that started it, whatever becomes of it.
struct Report {
    char doing[160];
    unsigned failures, complaints;
    bool done, last;
};
Report *report = nullptr;

void tell(const std::string &complaint) {
    if (++report->complaints <= 12) {
        std::fprintf(stderr, "%s at %s: %s\n", report->doing, culprit().c_str(), complaint.c_str());
    }
}

template <class What> void in_child(What what) {
    report->done = false;
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        what();
        report->done = true;
        std::fflush(nullptr);
        std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!report->done) {
        ++report->complaints;
        report->last = true;
        std::fprintf(stderr, "%s: the process ended with status 0x%x\n", report->doing,
                     unsigned(status));
    }
}

void trim_default_pools() {
    for (CUdevice device = 0; device < 2; device++) {
        CUmemoryPool pool = nullptr;
        must(cu.cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
        must(cu.cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
    }
}

// False: no call has failed, so this was the last.
bool fail_once(const Workload &workload, const std::string &fault, std::string &held) {
    std::snprintf(report->doing, sizeof report->doing, "%s, %s", workload.name, fault.c_str());
    alarm(most_seconds);
    Pass pass;
    arm(fault);
    workload.run(pass);
    disarm();
    const unsigned failed = failures();
    pass.end();
    trim_default_pools();
    alarm(0);
    for (const std::string &complaint : pass.complaints()) {
        tell(complaint);
    }
    if (held != holdings() && !held.empty() && !keeps_something()) {
        tell("expected " + held + ", found " + holdings());
    }
    // A pool that ends before its memory is given back takes that memory out of the account.
    static int64_t missed = 0;
    const int64_t missing = uncounted_bytes();
    if (missing != missed && !(missing > missed && keeps_something())) {
        tell("the accounts miss " + std::to_string(missing) + " bytes of the driver's");
    }
    missed = missing;
    held = holdings();
    report->failures += failed;
    return failed != 0;
}

void begin() {
    const std::string missing = find_driver("dlsym");
    if (!missing.empty()) {
        std::fprintf(stderr, "%s\n", missing.c_str());
        std::_Exit(2);
    }
    open_simulator();
}

void run_workload(const Workload &workload) {
    begin();
    must(cu.cuInit(0), "cuInit");
    std::string held;
    fail_once(workload, "", held);
    for (const char *how : {"", "+"}) {
        unsigned number = 1;
        while (fail_once(workload, "any@" + std::to_string(number) + how, held)) {
            if (++number == most) {
                return tell("it never ends without a failure");
            }
        }
    }
}

// --- the start -----------------------------------------------------------------------------------

// Either the start works, and then all works, or no memory is given out.
void start(const std::string &fault) {
    begin();
    alarm(most_seconds);
    std::snprintf(report->doing, sizeof report->doing, "the start, %s", fault.c_str());
    Pass *pass = nullptr;
    arm(fault);
    CUresult result = unspared([] { return cu.cuInit(0); });
    result = result == CUDA_SUCCESS ? result : cu.cuInit(0);
    disarm();
    report->last = failures() == 0;
    report->failures += failures();
    if (result == CUDA_SUCCESS) {
        pass = new Pass;
        pass->end();
        for (const std::string &complaint : pass->complaints()) {
            tell(complaint);
        }
        return;
    }
    CUdeviceptr ptr = 0;
    if (report->last) {
        tell("cuInit failed, and no driver call has");
    }
    if (cu.cuMemAlloc(&ptr, 5000) == CUDA_SUCCESS) {
        tell("cuInit failed, and memory is given out");
    }
}

void run_starts() {
    unsigned number = 1;
    do {
        in_child([=] { start("any@" + std::to_string(number)); });
    } while (!report->last && ++number < most);
}

bool is_wanted(const char *name, int argc, char *argv[]) {
    for (int i = 1; i < argc; i++) {
        if (std::strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return argc == 1;
}

} // namespace

int main(int argc, char *argv[]) {
    report = static_cast<Report *>(
        mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (const Workload &workload : workloads) {
        const unsigned before = report->failures;
        if (is_wanted(workload.name, argc, argv)) {
            in_child([&] { run_workload(workload); });
            std::printf("%s: %u failures\n", workload.name, report->failures - before);
        }
    }
    const unsigned before = report->failures;
    if (is_wanted("start", argc, argv)) {
        run_starts();
        std::printf("start: %u failures\n", report->failures - before);
    }
    if (report->failures == 0) {
        std::fputs("nothing has failed\n", stderr);
        return 1;
    }
    return report->complaints == 0 ? 0 : 1;
}
