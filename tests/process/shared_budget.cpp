// Processes of one group (EMM_LIMIT_SHARED) that are killed and stopped, without a driver.
//
//     steps      one is killed, or stopped, behind each instruction of its changes
//     kills=N    eight take and give back at random; so many are killed, and others come
//     crowd      200 join at once, and each takes its part
#include "driver/shared_group.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace emm::driver;

namespace {

constexpr uint64_t mib = 1 << 20, bound = 8192 * mib, bound_units = bound / shared_unit;

void require(bool good, const char *what) {
    if (!good) {
        std::fprintf(stderr, "%s\n", what);
        std::_Exit(1);
    }
}
#define REQUIRE(condition) require(condition, #condition)

template <class Type> Type &shared_memory() {
    void *const memory =
        mmap(nullptr, sizeof(Type), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    return *new (memory) Type;
}

uint64_t sum_held(const SharedDevice &device) {
    uint64_t sum = 0;
    for (unsigned member = 0; member < most_members; member++) {
        sum += units_held(device, member);
    }
    return sum;
}

// A change that leaves no trace: it finishes the change before.
void visit(SharedDevice &device) {
    REQUIRE(hold(device, 0, units_held(device, 0) + 1, UINT32_MAX));
    give_back(device, 0, units_held(device, 0));
}

// ---- steps

constexpr unsigned traced = 1, neighbour = 2;

[[noreturn]] void make_changes(SharedDevice &device) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) {
        std::_Exit(77);
    }
    raise(SIGSTOP);
    hold(device, traced, 600, 1000);
    give_back(device, traced, 250);
    std::_Exit(0);
}

// False: it has ended.
bool step(pid_t child) {
    int status = 0;
    REQUIRE(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSTOPPED(status);
}

pid_t start_traced(SharedDevice &device) {
    const pid_t child = fork();
    if (child == 0) {
        make_changes(device);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (!WIFSTOPPED(status)) {
        std::printf("no process may be traced here\n");
        std::_Exit(77);
    }
    return child;
}

// Steps so many instructions. False: the child has ended before.
bool step(pid_t child, unsigned steps) {
    bool is_there = true;
    for (unsigned i = 0; i < steps && is_there; i++) {
        is_there = step(child);
    }
    return is_there;
}

// False: the child had ended before.
bool killed_after(unsigned steps) {
    SharedState &state = shared_memory<SharedState>();
    SharedDevice &device = *row_of(state, {1, 2}, bound);
    const pid_t child = start_traced(device);
    const bool is_there = step(child, steps);
    if (is_there) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
    REQUIRE(units_taken(device) <= 1000);
    visit(device);
    REQUIRE(sum_held(device) == units_taken(device));
    take_back(device, traced, [] { return true; });
    REQUIRE(units_taken(device) == 0 && sum_held(device) == 0);
    REQUIRE(hold(device, traced, 1000, 1000));
    munmap(&state, sizeof state);
    return is_there;
}

// The neighbour goes on while the child is stopped, and the child goes on afterwards.
bool stopped_after(unsigned steps) {
    SharedState &state = shared_memory<SharedState>();
    SharedDevice &device = *row_of(state, {1, 2}, bound);
    const pid_t child = start_traced(device);
    const bool is_there = step(child, steps);
    const uint64_t taken = units_taken(device);
    REQUIRE(!hold(device, neighbour, 1000 - taken + 1, 1000));
    REQUIRE(hold(device, neighbour, 1000 - taken, 1000) || taken == 1000);
    give_back(device, neighbour, units_held(device, neighbour));
    if (is_there) {
        REQUIRE(ptrace(PTRACE_DETACH, child, nullptr, nullptr) == 0);
        waitpid(child, nullptr, 0);
    }
    REQUIRE(units_held(device, traced) == 350 && units_taken(device) == 350);
    munmap(&state, sizeof state);
    return is_there;
}

void try_steps() {
    unsigned steps = 0;
    while (killed_after(steps) && (steps % 2 != 0 || stopped_after(steps))) {
        steps++;
    }
    std::printf("%u instructions\n", steps);
    REQUIRE(steps > 100);
}

// ---- kills

struct Uses {
    std::atomic<uint64_t> bytes[8], changes;
};

class Member {
public:
    explicit Member(const std::string &path) {
        const std::string problem = join_group(file_, path, {{{1, 2}, bound, bound}}, shares_);
        require(problem.empty(), problem.c_str());
    }
    Share &share() { return *shares_.front(); }
    SharedDevice &device() { return *row_of(file_.state(), {1, 2}, bound); }

private:
    GroupFile file_;
    std::vector<std::unique_ptr<Share>> shares_;
};

[[noreturn]] void work(const std::string &path, std::atomic<uint64_t> &used, Uses &uses,
                       unsigned seed) {
    Member member(path);
    std::minstd_rand random(seed);
    for (;;) {
        const uint64_t bytes = random() % (bound / 4);
        used = std::min<uint64_t>(used, bytes);
        member.share().return_unused(used, random() % 2 != 0);
        if (member.share().cover(bytes)) {
            used = bytes;
        }
        uses.changes++;
    }
}

void stop(pid_t pid) {
    int status = 0;
    kill(pid, SIGSTOP);
    REQUIRE(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
}

void try_kills(const std::string &path, unsigned kills) {
    Member watcher(path);
    Uses &uses = shared_memory<Uses>();
    pid_t workers[8] = {};
    std::minstd_rand random(kills);
    for (unsigned killed = 0; killed < kills; killed++) {
        for (unsigned i = 0; i < 8; i++) {
            if (workers[i] == 0 && (workers[i] = fork()) == 0) {
                work(path, uses.bytes[i], uses, killed * 8 + i);
            }
        }
        const uint64_t before = uses.changes;
        while (uses.changes < before + 20 + random() % 200) {
            usleep(100);
        }
        for (const pid_t each : workers) {
            stop(each);
        }
        visit(watcher.device());
        uint64_t used = 0;
        for (const std::atomic<uint64_t> &each : uses.bytes) {
            used += each;
        }
        REQUIRE(used <= bound);
        REQUIRE(units_taken(watcher.device()) <= bound_units);
        REQUIRE(sum_held(watcher.device()) == units_taken(watcher.device()));
        const unsigned victim = random() % 8;
        kill(workers[victim], SIGKILL);
        waitpid(workers[victim], nullptr, 0);
        workers[victim] = 0;
        uses.bytes[victim] = 0;
        for (const pid_t each : workers) {
            if (each != 0) {
                kill(each, SIGCONT);
            }
        }
    }
    for (const pid_t each : workers) {
        if (each != 0) {
            kill(each, SIGKILL);
            waitpid(each, nullptr, 0);
        }
    }
    REQUIRE(watcher.share().cover(bound));
    watcher.share().return_unused(0, false);
    REQUIRE(units_taken(watcher.device()) == 0 && sum_held(watcher.device()) == 0);
}

// ---- crowd

void try_crowd(const std::string &path) {
    constexpr unsigned count = 200;
    constexpr uint64_t part = bound / count / mib * mib;
    int start[2], done[2], end[2];
    REQUIRE(pipe(start) == 0 && pipe(done) == 0 && pipe(end) == 0);
    for (unsigned i = 0; i < count; i++) {
        if (fork() == 0) {
            char byte;
            close(start[1]);
            close(end[1]);
            REQUIRE(read(start[0], &byte, 1) == 0);
            Member member(path);
            REQUIRE(member.share().cover(part));
            REQUIRE(write(done[1], "", 1) == 1);
            REQUIRE(read(end[0], &byte, 1) == 0);
            std::_Exit(0);
        }
    }
    close(start[1]);
    close(done[1]);
    char byte;
    for (unsigned i = 0; i < count; i++) {
        REQUIRE(read(done[0], &byte, 1) == 1);
    }
    Member watcher(path);
    REQUIRE(units_taken(watcher.device()) == count * part / shared_unit);
    REQUIRE(!watcher.share().cover(bound - count * part + 1));
    close(end[1]);
    for (unsigned i = 0; i < count; i++) {
        int status = 1;
        REQUIRE(wait(&status) > 0 && status == 0);
    }
    REQUIRE(watcher.share().cover(bound));
}

} // namespace

int main(int, char **argv) {
    char folder[] = "/tmp/emm-budget-XXXXXX";
    REQUIRE(mkdtemp(folder));
    std::string path;
    REQUIRE(find_group("job", {folder, ""}, path).empty());
    const std::string what = argv[1];
    if (what == "steps") {
        try_steps();
    } else if (what == "crowd") {
        try_crowd(path);
    } else {
        try_kills(path, static_cast<unsigned>(std::atoi(what.c_str() + std::strlen("kills="))));
    }
    unlink(path.c_str());
    rmdir(folder);
    return 0;
}
