#include "child.h"
#include "command_line.h"

#include <cstring>

int main(int argc, char **argv) {
    if (argc == 2 && std::strcmp(argv[1], emm::tool::child_argument) == 0) {
        return emm::tool::run_child();
    }
    return emm::tool::run_command_line(argc, argv);
}
