#include "child.h"
#include "command_line.h"

#include <cstdio>
#include <cstring>
#include <exception>

int main(int argc, char **argv) try {
    if (argc == 2 && std::strcmp(argv[1], emm::tool::child_argument) == 0) {
        return emm::tool::run_child();
    }
    return emm::tool::run_command_line(argc, argv);
} catch (const std::exception &error) { // not even a report could be made
    std::fprintf(stderr, "emm: the tool failed: %s\n", error.what());
    return 1;
}
