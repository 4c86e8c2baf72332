#pragma once

namespace emm::tool::check {

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

// From now on a crash inside a slot writes {"inside": SLOT} to the descriptor before it takes its
// course.
void report_crashes(int descriptor);

} // namespace emm::tool::check
