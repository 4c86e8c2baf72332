#include "catch.h"
#include "run/program.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

using namespace emm::tool;
using Words = std::vector<std::string>;

namespace {

// A folder with files, for the length of a test.
class Folder {
public:
    Folder() {
        char name[] = "/tmp/emm-program-test-XXXXXX";
        path_ = mkdtemp(name);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string path(const std::string &name) const { return path_ + "/" + name; }

    std::string file(const std::string &name, const std::string &text, mode_t mode = 0755) const {
        std::ofstream(path(name)) << text;
        chmod(path(name).c_str(), mode);
        return path(name);
    }

private:
    std::string path_;
};

std::string refusal_of(const std::string &path, int status) {
    try {
        check_program(path);
    } catch (const Refusal &refusal) {
        CHECK(refusal.status() == status);
        return refusal.what();
    }
    return "";
}

bool tells(const std::string &sentence, const std::string &words) {
    return sentence.find(words) != std::string::npos;
}

} // namespace

TEST_CASE("a program is the first executable file in the folders of PATH") {
    const Folder folder;
    std::filesystem::create_directories(folder.path("a/tool"));
    std::filesystem::create_directories(folder.path("b"));
    std::filesystem::create_directories(folder.path("c"));
    folder.file("b/tool", "", 0644);
    const std::string tool = folder.file("c/tool", "");
    const std::string folders = folder.path("nothing") + ":" + folder.path("a") + ":" +
                                folder.path("b") + ":" + folder.path("c");
    CHECK(find_program("tool", folders.c_str()).path == tool);
    CHECK(find_program("tool", folders.c_str()).error == 0);
    CHECK(find_program("tool", folder.path("b").c_str()).error == EACCES);
    CHECK(find_program("tool", folder.path("a").c_str()).error == EISDIR);
    CHECK(find_program("tools", folders.c_str()).error == ENOENT);
    CHECK(find_program("", folders.c_str()).error == ENOENT);
}

TEST_CASE("a path is taken as it is, and PATH is not searched for it") {
    const Folder folder;
    folder.file("tool", "");
    CHECK(find_program(folder.path("tool"), nullptr).error == 0);
    CHECK(find_program("./tool", folder.path("").c_str()).error == ENOENT);
    CHECK(find_program(folder.path("tool/x"), nullptr).error == ENOTDIR);
}

TEST_CASE("without PATH the folders of the system are searched") {
    CHECK(find_program("sh", nullptr).path == "/bin/sh");
}

TEST_CASE("a script's first line has an interpreter and at most one argument") {
    CHECK(interpreter_of("#!/bin/sh\necho") == Words{"/bin/sh"});
    CHECK(interpreter_of("#! \t/bin/sh -e -x \nx") == Words{"/bin/sh", "-e -x"});
    CHECK(interpreter_of("#!/bin/sh") == Words{"/bin/sh"});
    CHECK(interpreter_of("#!\n/bin/sh").empty());
    CHECK(interpreter_of("echo #!/bin/sh").empty());
    CHECK(interpreter_of("").empty());
}

TEST_CASE("env starts the program that its argument names") {
    CHECK(program_of_env("python3") == "python3");
    CHECK(program_of_env("-S A=1 python3 -u") == "python3");
    CHECK(program_of_env("-Spython3 -u") == "python3");
    CHECK(program_of_env("-i") == "");
    CHECK(program_of_env("-S") == "");
}

TEST_CASE("a script is judged by its interpreter, through scripts and env") {
    const Folder folder;
    const std::string cut = folder.file("cut", "\177ELF");
    CHECK(tells(refusal_of(cut, 126), "cannot run " + cut + " on emm: it is truncated"));
    const std::string script = folder.file("script", "#!" + cut + "\n");
    CHECK(tells(refusal_of(script, 126), script + ": its interpreter " + cut));
    const std::string outer = folder.file("outer", "#!/usr/bin/env " + script + "\n");
    CHECK(tells(refusal_of(outer, 126), outer + ": its interpreter " + cut));
    CHECK(refusal_of(folder.file("good", "#!/bin/sh\n"), 0) == "");
    CHECK(refusal_of(folder.file("plain", "echo\n"), 0) == "");
}

TEST_CASE("a script without its interpreter is refused, and one that runs itself ends") {
    const Folder folder;
    const std::string lost = folder.file("lost", "#!/nowhere/sh\n");
    CHECK(refusal_of(lost, 126) ==
          "cannot run " + lost + ": its interpreter /nowhere/sh: No such file or directory");
    const std::string itself = folder.file("itself", "#!" + folder.path("itself") + "\n");
    CHECK(refusal_of(itself, 0) == "");
}
