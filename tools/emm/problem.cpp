#include "problem.h"

#include "loader/text.h"
#include "observe/text.h"

#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

std::string text_of(const Json &object, const char *key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string text_of(const char *text) {
    return text ? text : "";
}

// The paths are listed below the sentence, so it does not end with them.
std::string sentence_of(const Problem &problem) {
    std::string sentence = problem.message;
    const std::string tried = loader::tried_places(problem.tried);
    const size_t at = sentence.find(tried);
    return observe::one_line(at == std::string::npos ? sentence : sentence.erase(at, tried.size()));
}

} // namespace

Json to_json(const Problem &problem) {
    const Json error = {{"code", problem.code},
                        {"stage", text_or_null(problem.stage)},
                        {"message", problem.message},
                        {"path", text_or_null(problem.path)},
                        {"expected", text_or_null(problem.expected)},
                        {"got", text_or_null(problem.got)},
                        {"tried", problem.tried},
                        {"hint", text_or_null(problem.hint)}};
    return Json{{"error", error}};
}

Problem problem_from_json(const Json &json) {
    const Json &error = json.at("error");
    return {.code = error.value("code", EMM_E_INVALID_VALUE),
            .stage = text_of(error, "stage"),
            .message = text_of(error, "message"),
            .path = text_of(error, "path"),
            .expected = text_of(error, "expected"),
            .got = text_of(error, "got"),
            .tried = error.value("tried", std::vector<std::string>()),
            .hint = text_of(error, "hint")};
}

std::string to_text(const Problem &problem) {
    std::string text = sentence_of(problem);
    if (!problem.tried.empty()) {
        text += "\n  tried:";
    }
    for (const std::string &path : problem.tried) {
        text += "\n    " + observe::one_line(path);
    }
    // The sentence may end with the hint already, because some programs print only the sentence.
    if (!problem.hint.empty() && problem.message.find(problem.hint) == std::string::npos) {
        text += "\n  hint: " + observe::one_line(problem.hint);
    }
    return text;
}

Problem last_problem(const std::string &stage) {
    const emm_error &error = *emm_last_error();
    Problem problem;
    problem.code = error.code;
    problem.stage = error.stage ? error.stage : stage;
    problem.message = text_of(error.text);
    problem.path = text_of(error.path);
    problem.expected = text_of(error.expected);
    problem.got = text_of(error.got);
    for (const char *const *path = error.tried; path && *path; path++) {
        problem.tried.emplace_back(*path);
    }
    problem.hint = text_of(error.hint);
    return problem;
}

void require(emm_status status, const std::string &stage) {
    if (status < 0) {
        throw Failure(last_problem(stage));
    }
}

} // namespace emm::tool
