// Forked and watched children, and the acts of them and their parent.
#pragma once

#include "entries.h"

#include <atomic>
#include <functional>
#include <sys/types.h>
#include <thread>
#include <vector>

namespace forked {

// --- children: children.cpp

// The words of a child, even if it never ends.
struct Report {
    char doing[128];
    char wrong[1024];
    bool done;
};
extern Report *report;
extern int hung, wrong; // children
// A real driver's exit handlers may wait for a lock that a thread of the parent held.
extern bool only_at_once;

enum class End { at_once, by_exit, by_its_thread };

void share_report();
void require(bool good, const char *what); // otherwise ends the program
void say_doing(const char *what);
void say_wrong(const char *what);
bool watch(pid_t child); // true: it has ended in time
void judge(bool ended);
// `act` runs in a child, which then ends in one way or another.
void fork_one(const std::function<void()> &act, End end);
bool is_enough();
void fork_many(int rounds, const std::function<void()> &act);
// A real driver has threads of its own, which go on when a child's first thread has ended.
void fork_many_that_use_the_driver(int rounds, const std::function<void()> &act);

// --- the steps of a child: answers.cpp

extern Things things;
extern const emm_host *services; // of the linked-in plugin

emm_status ignore(void *, uint32_t);
void be_refused();
// A child that may continue earlier calls, or not: but it must not wait.
void answer_at_all();
void go_on();

// --- the steps of the parent: parent.cpp, exports.cpp

void make_things();
void pair_of_handles();
void every_kind();
void use_services();
const emm_plugin *linked_in_plugin(const emm_host *host);
void fork_among_exports(int rounds);

// Other threads that call `act` until the end of the scope.
class Busy {
public:
    explicit Busy(const std::vector<std::function<void()>> &acts);
    ~Busy();

private:
    std::atomic<bool> over_{false};
    std::atomic<size_t> rounds_{0};
    std::vector<std::thread> threads_;
};

} // namespace forked
