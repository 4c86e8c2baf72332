#pragma once

#include "check/plan.h"
#include "json.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace emm::tool::check {

struct CaseOutcome {
    std::string state; // "passed", "failed", "skipped"
    std::string message;
    std::string output; // what its process wrote to standard error
    double seconds = 0;
};

// The log of a run: one paragraph for each case, and a verdict.
class Report {
public:
    Report(const CheckOptions &options, const Json &plugin);

    void add(const Planned &planned, const CaseOutcome &outcome);
    void end(double seconds);
    bool good() const { return failed_ == 0; }

private:
    std::string verdict() const;
    std::string paragraph(const Planned &planned, const CaseOutcome &outcome) const;

    const CheckOptions &options_;
    Json plugin_;
    Json told_ = Json::array();
    unsigned passed_ = 0, failed_ = 0, skipped_ = 0;
    std::vector<std::string> broken_; // requirements
};

void list(const std::vector<Planned> &planned, bool json);

} // namespace emm::tool::check
