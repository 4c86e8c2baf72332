// driver-faults KIND [WORKLOAD...]: a program on the driver API with the interposer between, in
// which each driver call that a served entry makes fails in turn (KIND any), or each allocation
// (memory), start of a thread (thread) or other system call (system): once, and from there on.
// After each failure the program has got an answer that CUDA knows, may give back what it has, is
// served as before, and nothing is left. Then the same for cuInit, where emm begins to serve. Each
// workload, and each start, has a process of its own. EMM_DRIVER names the simulated driver. With
// EMM_TEST_FAULT=N or N+, a start has this failure alone, in this process, for a debugger.
#include "pass.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace faults;

namespace {

constexpr unsigned most = 3000;       // failures in one loop: with more, the loop does not end
constexpr unsigned enough = 100;      // complaints, to give a loop up
constexpr unsigned most_seconds = 60; // of a pass

// The report of a process to the one that started it, whatever becomes of it.
struct Report {
    char doing[160];
    unsigned failures, complaints;
    bool done, last;
};
Report *report = nullptr;
std::string kind;

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
        while (fail_once(workload, kind + "@" + std::to_string(number) + how, held)) {
            if (++number == most || report->complaints > enough) {
                return tell("it never ends without a failure");
            }
        }
    }
}

// --- the start -----------------------------------------------------------------------------------

// Keeps the process's standard error during a scope.
class StandardError {
public:
    StandardError() : before_(dup(2)), file_(memfd_create("stderr", 0)) { dup2(file_, 2); }
    ~StandardError() { end(); }
    StandardError(const StandardError &) = delete;
    StandardError &operator=(const StandardError &) = delete;
    // Ends the scope.
    std::string text() const {
        end();
        std::string found(4096, '\0');
        found.resize(size_t(std::max(pread(file_, found.data(), found.size(), 0), ssize_t(0))));
        return found;
    }

private:
    void end() const { dup2(before_, 2); }
    int before_, file_;
};

// A start that fails says so in one sentence.
std::string problem_of(CUresult result, const std::string &said) {
    const auto lines = std::count(said.begin(), said.end(), '\n');
    if (result == CUDA_SUCCESS || (lines == 1 && said.starts_with("emm run: "))) {
        return "";
    }
    return "cuInit failed with " + std::to_string(result) + ", and said: " + said;
}

// Either the start works, and then all works, or no memory is given out.
void start(const std::string &fault) {
    begin();
    alarm(most_seconds);
    std::snprintf(report->doing, sizeof report->doing, "the start, %s", fault.c_str());
    Pass *pass = nullptr;
    const StandardError said;
    arm(fault);
    CUresult result = unspared([] { return cu.cuInit(0); });
    result = result == CUDA_SUCCESS ? result : cu.cuInit(0);
    disarm();
    if (const std::string problem = problem_of(result, said.text()); !problem.empty()) {
        tell(problem);
    }
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

void run_starts(const std::string &how) {
    unsigned number = 1;
    do {
        in_child([=] { start(kind + "@" + std::to_string(number) + how); });
    } while (!report->last && ++number < most);
}

bool is_wanted(const char *name, int argc, char *argv[]) {
    for (int i = 2; i < argc; i++) {
        if (std::strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return argc == 2;
}

} // namespace

int main(int argc, char *argv[]) {
    if (argc < 2) {
        std::fputs("usage: driver-faults any|memory|thread|system [WORKLOAD...]\n", stderr);
        return 2;
    }
    kind = argv[1];
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
    if (const char *one = std::getenv("EMM_TEST_FAULT"); one && is_wanted("start", argc, argv)) {
        start(kind + "@" + one);
        return report->complaints == 0 ? 0 : 1;
    }
    if (is_wanted("start", argc, argv)) {
        run_starts("");
        if (kind != "any") {
            run_starts("+");
        }
        std::printf("start: %u failures\n", report->failures - before);
    }
    if (report->failures == 0) {
        std::fputs("nothing has failed\n", stderr);
        return 1;
    }
    return report->complaints == 0 ? 0 : 1;
}
