#include "exchange/refusal.h"

#include "observe/text.h"

namespace emm::tool {

Failure bad_file(const std::string &name, const std::string &place, const Malformed &malformed) {
    Problem problem;
    problem.stage = "trace";
    problem.path = name;
    problem.expected = malformed.expected;
    problem.got = malformed.got;
    problem.message =
        observe::one_line(name + (place.empty() ? "" : ", " + place) + ": " + malformed.what());
    return Failure(problem);
}

} // namespace emm::tool
