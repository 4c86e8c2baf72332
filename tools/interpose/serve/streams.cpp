#include "streams.h"

#include "call.h"

namespace emm::run {
namespace {

// Unlike an address within the thread, it never becomes another's.
uint64_t thread_number() {
    static std::atomic<uint64_t> last{0};
    static thread_local const uint64_t number = ++last;
    return number;
}

} // namespace

constinit thread_local Streams::Latest Streams::latest_;

// A stream that emm does not know is served too, at a higher cost.
void Streams::made(CUstream stream, CUcontext in) {
    emm_status status = EMM_OK;
    emm_context *const context = contexts_.of(in, status);
    if (!context) {
        return;
    }
    try {
        const std::lock_guard lock(mutex_);
        streams_[stream] = {context, in};
    } catch (const std::bad_alloc &) {
        return;
    }
    const bool registered = emm_stream_register(context, stream) >= 0;
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    if (found != streams_.end()) {
        found->second.registered = registered;
    }
}

// A capture ends with its origin, and goes on without another stream.
void Streams::ending(CUstream stream) {
    end_announcements({stream}, true);
    Stream ended;
    {
        const std::lock_guard lock(mutex_);
        const auto found = streams_.find(stream);
        if (found == streams_.end()) {
            return;
        }
        ended = found->second;
        streams_.erase(found);
    }
    contexts_.begin_epoch();
    if (ended.registered) {
        emm_stream_retire(ended.context, stream);
    }
}

void Streams::green_ending(CUcontext green) {
    std::vector<CUstream> its;
    {
        const std::lock_guard lock(mutex_);
        for (const auto &[handle, stream] : streams_) {
            if (stream.made_in == green) {
                its.push_back(handle);
            }
        }
    }
    for (const CUstream stream : its) {
        ending(stream);
    }
}

void Streams::forget(const emm_context *context) {
    {
        const std::lock_guard lock(own_mutex_);
        std::erase_if(own_, [&](const auto &each) { // they end with the CUDA context
            return each.first.first == context;
        });
    }
    const auto is_there = [&](const auto &each) { return each.second.context == context; };
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, is_there);
    std::erase_if(captures_, is_there);
    capturing_ = captures_.size();
}

// The driver refuses a thread's own stream of a green context.
emm_context *Streams::current_for(CUstream &stream, emm_status &ret_status) {
    bool is_green = false;
    emm_context *const context = contexts_.current(ret_status, is_green);
    if (!is_green) [[likely]] {
        return context;
    }
    if (stream == CU_STREAM_PER_THREAD) {
        ret_status = EMM_E_NO_CONTEXT;
        return nullptr;
    }
    stream = EMM_STREAM_UNORDERED;
    return context;
}

emm_context *Streams::find_context_of(CUstream stream, emm_status &ret_status) {
    const uint64_t now = contexts_.epoch(); // from before the look
    emm_context *context = nullptr;
    {
        const std::lock_guard lock(mutex_);
        const auto found = streams_.find(stream);
        context = found == streams_.end() ? nullptr : found->second.context;
    }
    if (!context) {
        return contexts_.current(ret_status);
    }
    latest_ = {stream, context, now};
    ret_status = EMM_OK;
    return context;
}

// --- emm's own -----------------------------------------------------------------------------------

// The plugin frees on the one that waits.
CUstream Streams::make_own(emm_context *context, Own purpose) const {
    const CurrentOf current(driver_, context);
    CUstream made = nullptr;
    if (current.result() != CUDA_SUCCESS ||
        ask_driver<&cuStreamCreate>(served_cuStreamCreate, &made, CU_STREAM_NON_BLOCKING) !=
            CUDA_SUCCESS) {
        return nullptr;
    }
    if (purpose == Own::waits) {
        emm_stream_register(context, made);
    }
    return made;
}

CUstream Streams::own_in(emm_context *context, Own purpose) noexcept {
    try {
        const std::lock_guard lock(own_mutex_);
        CUstream &own = own_[{context, purpose}];
        own = own ? own : make_own(context, purpose);
        return own;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

// Before CUDA 12.5 there is no such event: a capture that begins at that moment is invalidated.
void Streams::wait_for_work_of(emm_context *context) {
    const CurrentOf current(driver_, context);
    const Relaxed relaxed(driver_);
    if (current.result() != CUDA_SUCCESS || any_capture()) {
        return;
    }
    if (!driver_.record_context_event) {
        driver_.cuCtxSynchronize();
        return;
    }
    CUevent event = nullptr;
    if (driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return;
    }
    bool marked = false;
    {
        const std::shared_lock none_begins(beginning_mutex_);
        marked = !any_capture() &&
                 driver_.record_context_event(current.context(), event) == CUDA_SUCCESS;
    }
    if (marked) {
        driver_.cuEventSynchronize(event);
    }
    driver_.cuEventDestroy(event);
}

// --- captures ----------------------------------------------------------------------------------

Streams::Key Streams::key_of(CUstream stream) {
    emm_status status = EMM_OK;
    return stream == CU_STREAM_PER_THREAD ? Key{stream, contexts_.current(status), thread_number()}
                                          : Key{stream};
}

bool Streams::is_announced(const Key &key) {
    const std::lock_guard lock(mutex_);
    return captures_.count(key) != 0;
}

bool Streams::announce(const Key &key, const Announced &capture) {
    const std::lock_guard beginning(beginning_mutex_);
    if (emm_capture_begin(capture.context, key.handle) < 0) {
        return false;
    }
    try {
        const std::lock_guard lock(mutex_);
        captures_[key] = capture;
        capturing_ = captures_.size();
        return true;
    } catch (const std::bad_alloc &) {
        emm_capture_end(capture.context, key.handle);
        return false;
    }
}

// Of this stream; and `of_all` of its capture, if that is its origin. What the plugin does then may
// take its time, so no lock is held.
void Streams::end_announcements(const Key &key, bool of_all) {
    Captures ended;
    {
        const std::lock_guard lock(mutex_);
        const auto found = captures_.find(key);
        if (found == captures_.end()) {
            return;
        }
        const Announced capture = found->second;
        const bool all = of_all && capture.origin && capture.id != 0;
        for (auto each = captures_.begin(); each != captures_.end();) {
            const auto next = std::next(each);
            if (each == found || (all && each->second.id == capture.id)) {
                ended.insert(captures_.extract(each));
            }
            each = next;
        }
        capturing_ = captures_.size();
    }
    for (const auto &[stream, capture] : ended) {
        emm_capture_end(capture.context, stream.handle);
    }
}

uint64_t Streams::capture_of(CUstream stream) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    const CUresult result =
        driver_.get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

// A stream that captures already will be refused by the driver, and its capture goes on.
bool Streams::capture_begins(CUstream origin) {
    emm_status status = EMM_OK;
    const Key key = key_of(origin);
    emm_context *const context = context_of(origin, status);
    return context && !is_announced(key) && announce(key, {context, 0, true});
}

void Streams::capture_begun(CUstream origin, CUresult result) {
    const Key key = key_of(origin);
    if (result != CUDA_SUCCESS) {
        return end_announcements(key, false);
    }
    const uint64_t id = capture_of(origin);
    const std::lock_guard lock(mutex_);
    const auto found = captures_.find(key);
    if (found != captures_.end()) {
        found->second.id = id;
    }
}

void Streams::waited(CUstream stream) {
    const uint64_t id = capture_of(stream);
    emm_status status = EMM_OK;
    const Key key = key_of(stream);
    emm_context *const context = id ? context_of(stream, status) : nullptr;
    if (context && !is_announced(key)) {
        announce(key, {context, id});
    }
}

void Streams::capture_ended(CUstream origin) {
    end_announcements(key_of(origin), true);
}

} // namespace emm::run
