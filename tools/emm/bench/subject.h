#pragma once

#include "bench/entry.h"
#include "bench/team.h"
#include "json.h"

#include <memory>
#include <string>
#include <vector>

namespace emm::tool {

// What is measured: a plugin, or something to compare plugins with. Each has a process of its own.
class Subject {
public:
    virtual ~Subject() = default;
    virtual Team::Maker maker(const Entry &entry) = 0;
    // After an entry: what was cached for it must not stand in the way of the next.
    virtual void tidy() {}
    // As `emm info` tells it; null if it needs no driver.
    virtual Json driver() const;
    // What the environment named; "" if that does not matter.
    virtual std::string spec() const { return ""; }
};

// Why something that could have been measured is not there: no reason to fail.
struct Absent {
    std::string reason;
};

// A kind of subject: what its process is told to be, and the cases that it can run.
struct SubjectKind {
    const char *name;
    std::vector<const char *> cases;
};

constexpr const char *plugin_kind = "plugin", *logged_kind = "empty, logged";
const std::vector<SubjectKind> &subject_kinds();

// Throws Absent or Failure.
std::unique_ptr<Subject> make_subject(const std::string &kind);

std::unique_ptr<Subject> make_plugin_subject();
std::unique_ptr<Subject> make_empty_subject();
std::unique_ptr<Subject> make_malloc_subject();
std::unique_ptr<Subject> make_mimalloc_subject();
std::unique_ptr<Subject> make_driver_subject();
std::unique_ptr<Subject> make_driver_async_subject();
std::unique_ptr<Subject> make_driver_host_subject();
std::unique_ptr<Subject> make_driver_questions_subject();
std::unique_ptr<Subject> make_counter_subject();

} // namespace emm::tool
