#include "bench/memory.h"

#include "driver.h"

namespace emm::tool {

void throw_last_problem() {
    throw Failure(last_problem("run"));
}

void throw_cuda(CUresult result, const char *call) {
    require_cuda(result, call);
    throw Failure(Problem{});
}

void throw_no_memory(const char *function) {
    Problem problem;
    problem.code = EMM_E_OUT_OF_HOST_MEMORY;
    problem.stage = "run";
    problem.message = std::string(function) + " has no memory left";
    throw Failure(problem);
}

} // namespace emm::tool
