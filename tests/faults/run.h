// One pass of a workload: calls of emm until one fails, and the clean-up after it.
#pragma once

#include "../parts/sized.h"
#include "fault.h"
#include "world.h"

#include <functional>
#include <string>
#include <vector>

namespace faults {

constexpr size_t kib = 1024, mib = 1024 * kib;

class Run {
public:
    // Without a world the workload is to find a context by itself.
    Run(World *world, const Offer *offer, bool may_break = false)
        : context_(world ? world->emm() : nullptr), world_(world), offer_(offer),
          may_break_(may_break) {}

    World &world() const { return *world_; }
    emm_context *context() const { return context_; }
    void set_context(emm_context *context) { context_ = context; }
    const Offer &offer() const { return *offer_; }

    // Makes a call, unless an earlier one has failed. True: it succeeded.
    template <class Call> bool call(const char *what, const Call &make) {
        if (has_failed()) {
            return false;
        }
        const emm_status status = inside(make);
        return status >= EMM_OK || fails(what, status);
    }

    // A step of the program itself must succeed, unless the device is broken.
    bool own(bool done, const char *what) {
        must(done || may_break_, what);
        status_ = done || has_failed() ? status_ : EMM_E_DEVICE_LOST;
        return done;
    }

    // Checks that an output has the same value as before a call that failed.
    template <class Value> void left_alone(const char *what, Value output, Value before) {
        if (output != before) {
            complain(std::string(what) + " failed and has written to its output");
        }
    }

    // Each is kept until free_all, or the end of the pass.
    bool alloc(size_t size, emm_stream stream);
    bool hostalloc(size_t size, uint32_t flags, emm_stream stream = EMM_STREAM_UNORDERED);
    bool pin(size_t size, uint32_t flags);
    bool managed(size_t size, emm_stream stream = EMM_STREAM_UNORDERED);
    // A handle that `make` fills in.
    emm_memory *handle(const char *what, const std::function<emm_status(emm_memory **)> &make);
    emm_deviceptr latest() const { return held_.empty() ? 0 : held_.back().ptr; }

    // A free on a stream that captures may be refused; the memory is kept then.
    bool free_oldest();
    bool free_latest(size_t count);
    bool free_all();
    bool free_every_second();

    // An action that a call of emm other than a free must undo.
    void undo_later(const char *what, std::function<emm_status()> undo, bool done_anyway = false);

    bool may_break() const { return may_break_; }

    // Gives up held objects; those that cannot be given up now are tried again the next time.
    void clean_up();
    // The context was reset or retired: held objects are no longer the run's.
    void forget() { held_.clear(); }
    // A reset has dropped memory that could not be freed before: its free may be refused.
    void forgive();

    bool has_failed() const { return status_ < EMM_OK; }
    emm_status status() const { return status_; }
    const std::string &failed_at() const { return failed_at_; }
    bool is_clean() const { return held_.empty(); }
    std::vector<std::string> complaints;
    void complain(const std::string &what) { complaints.push_back(what); }

private:
    struct Held {
        const char *what;
        std::function<emm_status()> give_back;
        bool gone_anyway; // whatever the call answers
        bool is_free;     // a free succeeds once the device is lost
        emm_deviceptr ptr;
        bool refused = false; // by an earlier call, which therefore has done nothing
        bool dropped = false; // by a reset
    };

    template <class Call> static emm_status inside(const Call &make) {
        const Inside scope;
        return make();
    }
    bool fails(const char *what, emm_status status);
    bool give_back(size_t index);
    void hold(const char *what, emm_deviceptr ptr, std::function<emm_status()> undo,
              bool gone_anyway = false, bool is_free = true) {
        held_.push_back({what, std::move(undo), gone_anyway, is_free, ptr});
    }

    emm_context *context_;
    World *const world_;
    const Offer *const offer_;
    const bool may_break_; // the device, for all contexts
    emm_status status_ = EMM_OK;
    std::string failed_at_;
    std::vector<Held> held_;
};

} // namespace faults
