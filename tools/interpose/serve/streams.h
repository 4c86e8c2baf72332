// The program's streams: registered with emm when they are made, retired before they end, with
// their captures announced.
#pragma once

#include "contexts.h"

#include <compare>
#include <cstdint>
#include <map>
#include <unordered_map>

namespace emm::run {

class Streams {
public:
    Streams(const Driver &driver, Contexts &contexts) : driver_(driver), contexts_(contexts) {}

    void made(CUstream stream, CUcontext in);
    // The stream is about to be destroyed. The answer is for capture_over afterwards.
    uint64_t ending(CUstream stream);
    std::vector<CUstream> made_in(CUcontext green);
    void forget(const emm_context *context);

    // The context that serves a stream: the context that it was made in, or the current context for
    // CUDA's own streams and for unknown ones. NULL in a green context is another stream than NULL
    // in its primary context, which serves it: to emm it is EMM_STREAM_UNORDERED.
    emm_context *context_of(CUstream &stream, emm_status &ret_status) {
        const bool is_latest = latest_.stream == stream && latest_.epoch == contexts_.epoch();
        if (is_latest) [[likely]] {
            ret_status = EMM_OK;
            return latest_.context;
        }
        if (is_cudas_own(stream)) {
            CUstream named = stream; // so that the caller's need not be in memory
            emm_context *const context = current_for(named, ret_status);
            stream = named;
            return context;
        }
        return find_context_of(stream, ret_status);
    }

    // The legacy stream by both names, and the thread's own: those of the current context.
    static bool is_cudas_own(CUstream stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

    // A stream of emm's own in that context. `waits` waits for streams of other contexts; `fills`
    // is for memory that nothing uses yet. NULL: no stream could be made.
    enum class Own { waits, fills };
    CUstream own_in(emm_context *context, Own purpose) noexcept;

    // Waits for the work that the context has now, but not during a capture, which the wait would
    // invalidate. Hold no lock meanwhile: a host function may wait for another thread's call.
    void wait_for_work_of(emm_context *context);

    // The stream is about to begin a capture, or may join a capture because it waits for an event.
    // Call capture_begins before the driver's call. If it gave true, call capture_begun afterwards.
    enum class Part { origin, other };
    bool capture_begins(CUstream stream, Part part);
    void capture_begun(CUstream stream, Part part, CUresult result);
    uint64_t capture_ended(CUstream origin); // and the captures of all streams in it; its id, or 0
    void capture_over(uint64_t id);          // 0: no capture
    bool captures(CUstream stream) {         // as far as announced
        return any_capture() && is_announced(key_of(stream));
    }
    bool any_capture() const { return capturing_.load(std::memory_order_acquire) != 0; }

private:
    struct Stream {
        emm_context *context = nullptr;
        CUcontext made_in = nullptr; // may be a green context
        bool registered = false;
    };

    // All threads use one handle for their own streams, in each context. So the key of such a
    // stream has the thread and the context.
    struct Key {
        CUstream handle = nullptr;
        const emm_context *context = nullptr;
        uint64_t thread = 0;
        auto operator<=>(const Key &) const = default;
    };
    // An announced capture, by one of its streams.
    struct Announced {
        emm_context *context = nullptr;
        uint64_t id = 0; // 0: not known
        bool origin = false;
    };
    using Captures = std::map<Key, Announced>;

    // The thread's latest stream, but not a stream of CUDA's own, whose context changes.
    struct Latest {
        CUstream stream = nullptr;
        emm_context *context = nullptr;
        uint64_t epoch = 0; // none
    };
    [[gnu::tls_model("initial-exec")]] static constinit thread_local Latest latest_;

    emm_context *current_for(CUstream &stream, emm_status &ret_status);
    emm_context *find_context_of(CUstream stream, emm_status &ret_status); // not of CUDA
    Key key_of(CUstream stream);
    bool is_announced(const Key &key);
    bool announce(const Key &key, const Announced &capture);
    uint64_t end_announcement(const Key &key); // the id of the capture whose origin it was, or 0
    template <class IsOver> void end_announcements(IsOver is_over);
    uint64_t capture_of(CUstream stream) const; // 0: it does not capture
    CUstream make_own(emm_context *context, Own purpose) const;

    const Driver &driver_;
    Contexts &contexts_;
    std::shared_mutex beginning_mutex_; // shared: no capture begins meanwhile
    std::mutex mutex_;
    std::unordered_map<CUstream, Stream> streams_; // none of CUDA's own
    Captures captures_;
    std::atomic<size_t> capturing_{0}; // how many those are
    std::mutex own_mutex_;
    std::map<std::pair<const emm_context *, Own>, CUstream> own_;
};

} // namespace emm::run
