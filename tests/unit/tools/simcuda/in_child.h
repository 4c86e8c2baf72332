// Runs a function in a process of its own, for cases that must end in an abort.
#pragma once

#include "cuda_driver.h"

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

struct Ending {
    bool aborted = false;
    int status = -1;
    std::string text; // of standard error
};

inline Ending in_child(const std::function<void()> &body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        std::signal(SIGABRT, SIG_DFL); // not the test framework's business
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    Ending ending;
    char part[512];
    for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;) {
        ending.text.append(part, static_cast<size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ending.aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    ending.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ending;
}
