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
    std::string output; // the standard error of its process
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

// Says in which slot of the plugin this thread is, for the message about a crash.
class InSlot {
public:
    explicit InSlot(const char *name); // lives as long as the process
    ~InSlot();
    InSlot(const InSlot &) = delete;
    InSlot &operator=(const InSlot &) = delete;

private:
    const char *outer_;
};

// From now on a crash inside a slot writes {"inside": SLOT} to the descriptor before the signal
// takes its course.
void report_crashes(int descriptor);

} // namespace emm::tool::check
