#include "streams.h"

#include "call.h"

namespace emm::run {
namespace {

// A number that, unlike an address within the thread, never becomes another thread's.
uint64_t thread_number() {
    static std::atomic<uint64_t> last{0};
    static thread_local const uint64_t number = ++last;
    return number;
}

} // namespace

[[gnu::tls_model("initial-exec")]] constinit thread_local Streams::Latest Streams::latest_;

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

// A capture ends with its origin stream, and goes on without any other stream. The plugin must not
// use a stream that captures, so the stream retires first.
uint64_t Streams::ending(CUstream stream) {
    Stream ended;
    {
        const std::lock_guard lock(mutex_);
        const auto found = streams_.find(stream);
        if (found != streams_.end()) {
            ended = found->second;
            streams_.erase(found);
        }
    }
    if (ended.context) {
        contexts_.begin_epoch();
    }
    if (ended.registered) {
        emm_stream_retire(ended.context, stream);
    }
    return end_announcement({stream});
}

std::vector<CUstream> Streams::made_in(CUcontext green) {
    std::vector<CUstream> its;
    const std::lock_guard lock(mutex_);
    for (const auto &[handle, stream] : streams_) {
        if (stream.made_in == green) {
            its.push_back(handle);
        }
    }
    return its;
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

// Registers the stream that `waits`, because the plugin frees memory on that stream.
CUstream Streams::make_own(emm_context *context, Own purpose) const {
    const Current current(driver_, cuda_of(context));
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

// Before CUDA 12.5 an event of the whole context does not exist, and cuCtxSynchronize invalidates a
// capture that begins at that moment.
void Streams::wait_for_work_of(emm_context *context) {
    const CUcontext cuda = cuda_of(context);
    const Current current(driver_, cuda);
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
        marked = !any_capture() && driver_.record_context_event(cuda, event) == CUDA_SUCCESS;
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

// Calls the plugin, which may be slow, so no lock is held.
template <class IsOver> void Streams::end_announcements(IsOver is_over) {
    Captures ended;
    {
        const std::lock_guard lock(mutex_);
        for (auto each = captures_.begin(); each != captures_.end();) {
            const auto next = std::next(each);
            if (is_over(*each)) {
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

uint64_t Streams::end_announcement(const Key &key) {
    uint64_t id = 0;
    end_announcements([&](const auto &each) {
        id = each.first == key && each.second.origin ? each.second.id : id;
        return each.first == key;
    });
    return id;
}

void Streams::capture_over(uint64_t id) {
    if (id != 0) {
        end_announcements([id](const auto &each) { return each.second.id == id; });
    }
}

uint64_t Streams::capture_of(CUstream stream) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    const CUresult result =
        driver_.get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

// The driver refuses a stream that captures already; its capture goes on. The legacy stream never
// captures.
bool Streams::capture_begins(CUstream stream, Part part) {
    if (!stream || stream == CU_STREAM_LEGACY) {
        return false;
    }
    emm_status status = EMM_OK;
    const Key key = key_of(stream);
    emm_context *const context = context_of(stream, status);
    return context && !is_announced(key) && announce(key, {context, 0, part == Part::origin});
}

void Streams::capture_begun(CUstream stream, Part part, CUresult result) {
    const Key key = key_of(stream);
    const uint64_t id = result == CUDA_SUCCESS ? capture_of(stream) : 0;
    if (result != CUDA_SUCCESS || (part == Part::other && id == 0)) {
        end_announcement(key);
        return;
    }
    const std::lock_guard lock(mutex_);
    const auto found = captures_.find(key);
    if (found != captures_.end()) {
        found->second.id = id;
    }
}

uint64_t Streams::capture_ended(CUstream origin) {
    const uint64_t id = end_announcement(key_of(origin));
    capture_over(id);
    return id;
}

} // namespace emm::run
