#pragma once

#include "json.h"
#include "observe/error.h"

#include <emm/emm.h>

#include <exception>
#include <string>
#include <vector>

namespace emm::tool {

// A failure, with the fields of a plugin's load failure; an empty text means that the field does
// not apply.
struct Problem {
    emm_status code = EMM_E_INVALID_VALUE;
    std::string stage = {}, message = {}, path = {}, expected = {}, got = {};
    std::vector<std::string> tried = {};
    std::string hint = {};
};

// {"error": {"code", "stage", "message", "path", "expected", "got", "tried", "hint"}}
Json to_json(const Problem &problem);
Problem problem_from_json(const Json &json);

// For people: the sentence, the paths tried, the hint unless the sentence has it.
std::string to_text(const Problem &problem);

// libemm's report on the calling thread's last failing call, which was made in `stage`.
Problem last_problem(const std::string &stage);

class Failure : public std::exception {
public:
    explicit Failure(Problem problem) : problem_(std::move(problem)) {}
    const Problem &problem() const { return problem_; }
    const char *what() const noexcept override { return problem_.message.c_str(); }

private:
    Problem problem_;
};

using observe::sized;

// Throws Failure unless a call of libemm has succeeded.
void require(emm_status status, const std::string &stage);

} // namespace emm::tool
