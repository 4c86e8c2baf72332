// A child process: it carries out the job that arrives first on its standard input.
#include "child.h"
#include "commands.h"
#include "problem.h"

#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

void run(const Json &job, Parent &parent) {
    const auto name = job.value("job", std::string());
    if (name == "replay") {
        run_replay_job(job, parent);
    } else if (name == "bench") {
        run_bench_job(job, parent);
    } else if (name == "info") {
        run_info_job(job, parent);
    } else if (name == "describe") {
        run_describe_job(job, parent);
    } else if (name.rfind("check-", 0) == 0) {
        run_check_job(job, parent);
    }
}

Problem unexpected(const char *what) {
    return {.code = EMM_E_PLUGIN_FAILED,
            .stage = "run",
            .message = std::string("the tool failed: ") + what};
}

} // namespace

int run_child() {
    Parent parent;
    try {
        run(parent.receive(), parent);
        return 0;
    } catch (const Failure &failure) {
        parent.send(to_json(failure.problem()));
    } catch (const std::exception &error) {
        parent.send(to_json(unexpected(error.what())));
    }
    return 1;
}

} // namespace emm::tool
