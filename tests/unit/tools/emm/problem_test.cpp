#include "catch.h"
#include "problem.h"

#include <nlohmann/json.hpp>

using namespace emm::tool;

TEST_CASE("a problem is the object that a load failure is, and comes back from it") {
    Problem problem;
    problem.code = EMM_E_PLUGIN_NOT_FOUND;
    problem.stage = "resolve";
    problem.message = "no plugin is called 'pol'";
    problem.tried = {"/a", "/b"};
    problem.hint = "did you mean 'pool'?";
    const Json json = to_json(problem);
    std::vector<std::string> keys;
    for (const auto &[key, value] : json.at("error").items()) {
        keys.push_back(key);
    }
    CHECK(keys == std::vector<std::string>{"code", "stage", "message", "path", "expected", "got",
                                           "tried", "hint"});
    CHECK(json.at("error").at("path").is_null());
    const Problem back = problem_from_json(json);
    CHECK(back.code == problem.code);
    CHECK(back.tried == problem.tried);
    CHECK(to_text(back) ==
          "no plugin is called 'pol'\n  tried:\n    /a\n    /b\n  hint: did you mean 'pool'?");
}

TEST_CASE("paths that are listed are not in the sentence too") {
    Problem problem;
    problem.tried = {"/a", "/b", "/c", "/d"};
    problem.message = "no plugin is called 'pol' (tried /a, /b, /c and 1 more): found none";
    CHECK(to_text(problem) ==
          "no plugin is called 'pol': found none\n  tried:\n    /a\n    /b\n    "
          "/c\n    /d");
    problem.tried.clear();
    CHECK(to_text(problem) == problem.message);
}

TEST_CASE("a hint that is in the sentence is not told again") {
    Problem problem;
    problem.hint = "did you mean 'pool'?";
    problem.message = "no plugin is called 'pol'; " + problem.hint;
    CHECK(to_text(problem) == problem.message);
}

TEST_CASE("bytes that are no UTF-8 do not keep an error from being told") {
    Problem problem;
    problem.message = "a file called \xff";
    CHECK_NOTHROW(dump(to_json(problem)));
}
