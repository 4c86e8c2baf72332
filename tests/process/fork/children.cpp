#include "children.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace forked {
namespace {

constexpr int most_seconds = 30; // the most that a child may take
constexpr int enough_hung = 3;

[[noreturn]] void give_up(const char *what) {
    std::fprintf(stderr, "%s: %s\n", what, emm_last_error()->text);
    _exit(1);
}

} // namespace

Report *report = nullptr;

int hung = 0, wrong = 0;

void require(bool good, const char *what) {
    if (!good) {
        give_up(what);
    }
}

void say_doing(const char *what) {
    std::snprintf(report->doing, sizeof report->doing, "%s", what);
}

void say_wrong(const char *what) {
    if (report->wrong[0] == 0) {
        std::snprintf(report->wrong, sizeof report->wrong, "%.127s: %.127s: %.700s", report->doing,
                      what, emm_last_error()->text);
    }
}

bool watch(pid_t child) {
    const timespec moment = {0, 500'000};
    timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    int status = 0;
    for (;;) {
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) {
            break;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begun.tv_sec > most_seconds) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return false;
        }
        nanosleep(&moment, nullptr);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        say_wrong(WIFSIGNALED(status) ? "it was ended by a signal" : "it ended with an error");
    }
    return true;
}

void judge(bool ended) {
    if (!ended) {
        ++hung;
        std::fprintf(stderr, "a child hung in %s\n", report->doing);
    } else if (report->wrong[0] != 0 || !report->done) {
        ++wrong;
        std::fprintf(stderr, "a child did wrong, now in %s; %s\n", report->doing, report->wrong);
    }
}

void fork_one(const std::function<void()> &act, End end) {
    *report = {};
    say_doing("its fork");
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        act();
        say_doing("its end");
        report->done = true;
        if (end == End::at_once) {
            _exit(0);
        } else if (end == End::by_exit) {
            std::exit(0);
        }
        pthread_exit(nullptr);
    }
    judge(watch(child));
}

bool only_at_once = false;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int ends = 2; // the sanitizer's own thread goes on when a child's first thread has ended
#else
constexpr int ends = 3;
#endif

End end_of(int round) {
    return only_at_once ? End::at_once : static_cast<End>(round % ends);
}

} // namespace

void share_report() {
    report = static_cast<Report *>(
        mmap(nullptr, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

bool is_enough() {
    return hung >= enough_hung || wrong >= enough_hung;
}

void fork_many(int rounds, const std::function<void()> &act) {
    for (int round = 0; round < rounds && !is_enough(); ++round) {
        fork_one(act, end_of(round));
    }
}

void fork_many_that_use_the_driver(int rounds, const std::function<void()> &act) {
    for (int round = 0; round < rounds && !is_enough(); ++round) {
        fork_one(act, round % 2 == 0 ? End::at_once : End::by_exit);
    }
}

} // namespace forked
