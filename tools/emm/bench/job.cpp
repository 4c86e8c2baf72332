#include "bench/candidate.h"
#include "child.h"
#include "commands.h"
#include "problem.h"
#include "replay/session.h"

#include <map>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

// Carries out the parent's orders: sets measurements up, runs a round of one, takes them down.
class Bench {
public:
    Bench(Candidate &candidate, Parent &parent) : candidate_(candidate), parent_(parent) {}

    void serve() {
        for (;;) {
            const Json order = parent_.receive();
            if (order.contains("end")) {
                return;
            }
            try {
                parent_.send(obey(order));
            } catch (const Failure &failure) {
                parent_.send({{"failed", to_json(failure.problem())}});
            }
        }
    }

private:
    Json obey(const Json &order) {
        const auto id = order.at("id").get<int>();
        if (order.contains("set_up")) {
            const Json &wanted = order.at("set_up");
            const Measurement measurement = {wanted.at("case").get<std::string>(),
                                             wanted.at("threads").get<uint32_t>(),
                                             wanted.at("size").get<size_t>()};
            teams_[id] = std::make_unique<Team>(measurement.threads, candidate_.maker(measurement));
            return {{"done", true}};
        }
        if (order.contains("take_down")) {
            teams_.erase(id);
            candidate_.return_cached();
            return {{"done", true}};
        }
        const uint64_t calls_before = total(count_driver_calls());
        const Rate rate = teams_.at(id)->round(order.at("seconds").get<double>());
        return {{"ns_per_pair", rate.ns_per_pair},
                {"mpairs_per_s", rate.mpairs_per_s},
                {"pairs", rate.pairs},
                {"driver_calls", total(count_driver_calls()) - calls_before}};
    }

    Candidate &candidate_;
    Parent &parent_;
    std::map<int, std::unique_ptr<Team>> teams_;
};

} // namespace

void run_bench_job(const Json &job, Parent &parent) {
    try {
        const std::unique_ptr<Candidate> candidate =
            make_candidate(job.at("kind").get<std::string>());
        parent.send({{"driver", candidate->driver()}, {"spec", candidate->spec()}});
        Bench(*candidate, parent).serve();
    } catch (const Absent &absent) {
        parent.send({{"absent", absent.reason}});
    }
}

} // namespace emm::tool
