// A main function for tests of state that a process has only once (the plugin in force, the loaded
// driver). Without arguments it runs each test case in a process of its own, and counts.
#include <cstdio>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
static std::string name_of(const Catch::TestCaseHandle &test) {
    return test.getTestCaseInfo().name;
}
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
static std::string name_of(const Catch::TestCase &test) {
    return test.name;
}
#endif

namespace {

std::vector<std::string> names(Catch::Session &session) {
    std::vector<std::string> found;
    for (const auto &test : Catch::getAllTestCasesSorted(session.config())) {
        found.push_back(name_of(test));
    }
    return found;
}

// A comma separates test names on Catch2's command line.
std::string quoted(const std::string &name) {
    std::string text;
    for (const char c : name) {
        text += c == ',' || c == '[' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
    return text;
}

bool passes(char *program, const std::string &name) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        const std::string filter = quoted(name);
        execl("/proc/self/exe", program, filter.c_str(), static_cast<char *>(nullptr));
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace

int main(int argc, char *argv[]) {
    Catch::Session session;
    if (argc > 1) {
        return session.run(argc, argv);
    }
    int passed = 0, failed = 0;
    for (const std::string &name : names(session)) {
        const bool good = passes(argv[0], name);
        ++(good ? passed : failed);
        std::printf("%s: %s\n", good ? "passed" : "FAILED", name.c_str());
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed != 0 || passed == 0;
}
