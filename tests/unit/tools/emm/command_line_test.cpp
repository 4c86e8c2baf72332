#include "catch.h"
#include "commands.h"

#include <initializer_list>
#include <string>
#include <vector>

namespace {

int status_of(std::initializer_list<const char *> words) {
    std::vector<std::string> texts(words.begin(), words.end());
    std::vector<char *> arguments;
    std::string program = "emm";
    arguments.push_back(program.data());
    for (std::string &text : texts) {
        arguments.push_back(text.data());
    }
    const int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    return emm::tool::run_command_line(count, arguments.data());
}

} // namespace

TEST_CASE("asking for help is no error") {
    CHECK(status_of({"--help"}) == 0);
    CHECK(status_of({"replay", "--help"}) == 0);
    CHECK(status_of({"run", "--help", "--", "sh"}) == 0);
    CHECK(status_of({"--version"}) == 0);
}

TEST_CASE("a program that is not there has the shell's status") {
    CHECK(status_of({"run", "--", "/nowhere/program"}) == 127);
    CHECK(status_of({"run", "--", "/tmp"}) == 126);
}

TEST_CASE("wrong usage is status 2") {
    CHECK(status_of({}) == 2);
    CHECK(status_of({"replya"}) == 2);
    CHECK(status_of({"replay"}) == 2);
    CHECK(status_of({"replay", "a.csv", "b.csv"}) == 2);
    CHECK(status_of({"replay", "a.csv", "--generate", "train"}) == 2);
    CHECK(status_of({"replay", "--generate", "trian"}) == 2);
    CHECK(status_of({"replay", "--generate", "train", "--order", "loose"}) == 2);
    CHECK(status_of({"replay", "--generate", "train", "--seed", "x"}) == 2);
    CHECK(status_of({"replay", "/nowhere/trace.csv"}) == 2);
    CHECK(status_of({"bench", "--case", "pear"}) == 2);
    CHECK(status_of({"bench", "--threads", "0"}) == 2);
    CHECK(status_of({"bench", "--size", "12q"}) == 2);
    CHECK(status_of({"info", "a", "b"}) == 2);
    CHECK(status_of({"new"}) == 2);
    CHECK(status_of({"new", "a/b"}) == 2);
    CHECK(status_of({"new", "--c", "--cpp", "mine"}) == 2);
    CHECK(status_of({"run"}) == 2);
    CHECK(status_of({"run", "--"}) == 2);
    CHECK(status_of({"run", "sh"}) == 2);
    CHECK(status_of({"run", "--frob", "--", "sh"}) == 2);
}
