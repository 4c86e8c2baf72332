// Included first by each mutated file. MUTANT is the number of the mutant in force; MUTANTS_REACHED
// names a file to which a process adds the number of each mutant that it passes, once.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

inline __attribute__((visibility("hidden"))) int mutant_in_force = -1;
inline __attribute__((visibility("hidden"))) const char *mutants_file = nullptr;
inline __attribute__((visibility("hidden"))) bool mutants_seen[1000] = {};

// System calls alone: it also runs in signal handlers and forked children.
__attribute__((cold, noinline)) inline void mutant_reached(int number) {
    mutants_seen[number] = true;
    char line[5] = {char('0' + number / 100), char('0' + number / 10 % 10), char('0' + number % 10),
                    '\n'};
    const int file = open(mutants_file, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file >= 0) {
        if (write(file, line, strlen(line)) < 0) {
        }
        close(file);
    }
}

inline bool is_mutant(int number) {
    if (__builtin_expect(mutant_in_force < 0, 0)) {
        const char *text = getenv("MUTANT");
        mutants_file = getenv("MUTANTS_REACHED");
        mutant_in_force = text ? atoi(text) : 0;
    }
    if (__builtin_expect(mutants_file && !mutants_seen[number], 0)) {
        mutant_reached(number);
    }
    return mutant_in_force == number;
}
