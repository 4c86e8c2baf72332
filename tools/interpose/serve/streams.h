// The program's streams: registered with emm when they are made, retired before they end, with
// their captures announced.
#pragma once

#include "contexts.h"

#include <cstdint>
#include <map>
#include <unordered_map>

namespace emm::run {

class Streams {
public:
    Streams(const Driver &driver, Contexts &contexts) : driver_(driver), contexts_(contexts) {}

    void made(CUstream stream);   // in the current context
    void ending(CUstream stream); // about to be destroyed
    void forget(const emm_context *context);

    // The context that serves a stream: that which it was made in; the current one for streams of
    // CUDA's own and those that are not known.
    emm_context *context_of(CUstream stream, emm_status &ret_status) {
        const bool is_latest = latest_.stream == stream && latest_.epoch == contexts_.epoch();
        if (is_latest) [[likely]] {
            ret_status = EMM_OK;
            return latest_.context;
        }
        return is_cudas_own(stream) ? contexts_.current(ret_status)
                                    : find_context_of(stream, ret_status);
    }

    // A stream of emm's own in that context, which waits for those of other contexts. NULL: there
    // is none.
    CUstream own_in(emm_context *context) noexcept;

    // A capture begins in `origin`: before the driver is told, and what it answered. Others join
    // when they wait for an event of it.
    void capture_begins(CUstream origin);
    void capture_begun(CUstream origin, CUresult result);
    void waited(CUstream stream);
    void capture_ended(CUstream origin); // and so has that of all streams in it
    bool captures(CUstream stream) {     // as far as announced
        return any_capture() && is_announced(stream);
    }
    // None can begin as long as this is held: what would invalidate it may be done if there is
    // none.
    std::shared_lock<std::shared_mutex> keep_from_capturing() {
        return std::shared_lock(beginning_mutex_);
    }
    bool any_capture() const { return capturing_.load(std::memory_order_acquire) != 0; }

private:
    struct Stream {
        CUstream handle = nullptr;
        emm_context *context = nullptr;
        bool registered = false;
        bool announced = false;
        uint64_t capture_id = 0; // 0: not known
    };

    // The thread's latest stream. None of CUDA's own, whose context changes.
    struct Latest {
        CUstream stream = nullptr;
        emm_context *context = nullptr;
        uint64_t epoch = 0; // none
    };
    static constinit thread_local Latest latest_ __attribute__((tls_model("initial-exec")));

    // The legacy stream by both names, and the thread's own.
    static bool is_cudas_own(CUstream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

    emm_context *find_context_of(CUstream stream, emm_status &ret_status); // that is none of those
    bool is_announced(CUstream stream);
    Stream *find(CUstream stream);                           // NULL: not known
    Stream *entry_of(CUstream stream, emm_context *context); // made if need be; NULL: no memory
    uint64_t capture_of(CUstream stream) const;              // 0: it does not capture
    void end_announcement(Stream &stream);
    CUstream make_own(emm_context *context) const;

    const Driver &driver_;
    Contexts &contexts_;
    std::shared_mutex beginning_mutex_;
    std::mutex mutex_;
    std::unordered_map<CUstream, Stream> streams_; // by handle; the thread's own by thread
    std::atomic<unsigned> capturing_{0};
    std::mutex own_mutex_;
    std::map<const emm_context *, CUstream> own_;
};

} // namespace emm::run
