#include "child.h"
#include "commands.h"
#include "print.h"

#include <cstring>
#include <exception>
#include <string>

int main(int argc, char **argv) try {
    if (argc >= 2 && std::strcmp(argv[1], emm::tool::child_argument) == 0) {
        return emm::tool::run_child();
    }
    emm::tool::hold_standard_descriptors();
    return emm::tool::run_command_line(argc, argv);
} catch (const std::exception &error) { // not even a report could be made
    emm::tool::print_error(std::string("emm: the tool failed: ") + error.what() + "\n");
    return 1;
}
