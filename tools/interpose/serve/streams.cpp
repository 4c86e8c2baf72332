#include "streams.h"

#include "call.h"

namespace emm::run {
namespace {

// All threads call their own streams by one handle.
CUstream key_of(CUstream stream) {
    static thread_local char thread;
    return stream == CU_STREAM_PER_THREAD ? reinterpret_cast<CUstream>(&thread) : stream;
}

} // namespace

constinit thread_local Streams::Latest Streams::latest_;

Streams::Stream *Streams::find(CUstream stream) {
    const auto found = streams_.find(key_of(stream));
    return found == streams_.end() ? nullptr : &found->second;
}

Streams::Stream *Streams::entry_of(CUstream stream, emm_context *context) {
    try {
        Stream &entry = streams_[key_of(stream)];
        entry.handle = stream;
        entry.context = entry.context ? entry.context : context;
        return &entry;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

// A stream that emm does not know is served too, at a higher cost.
void Streams::made(CUstream stream) {
    emm_status status = EMM_OK;
    emm_context *const context = contexts_.current(status);
    if (!context) {
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        streams_.erase(stream);
        if (!entry_of(stream, context)) {
            return;
        }
    }
    const bool registered = emm_stream_register(context, stream) >= 0;
    const std::lock_guard lock(mutex_);
    streams_[stream].registered = registered;
}

void Streams::ending(CUstream stream) {
    Stream ended;
    {
        const std::lock_guard lock(mutex_);
        const auto found = streams_.find(stream);
        if (found == streams_.end()) {
            return;
        }
        end_announcement(found->second);
        ended = found->second;
        streams_.erase(found);
    }
    contexts_.begin_epoch();
    if (ended.registered) {
        emm_stream_retire(ended.context, stream);
    }
}

void Streams::forget(const emm_context *context) {
    {
        const std::lock_guard lock(own_mutex_);
        own_.erase(context); // the stream ends with the CUDA context
    }
    const std::lock_guard lock(mutex_);
    for (auto entry = streams_.begin(); entry != streams_.end();) {
        if (entry->second.context == context) {
            capturing_ -= entry->second.announced;
            entry = streams_.erase(entry);
        } else {
            ++entry;
        }
    }
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

CUstream Streams::make_own(emm_context *context) const {
    const CurrentOf current(driver_, context);
    CUstream made = nullptr;
    if (current.result() != CUDA_SUCCESS ||
        ask_driver<&cuStreamCreate>(served_cuStreamCreate, &made, CU_STREAM_NON_BLOCKING) !=
            CUDA_SUCCESS) {
        return nullptr;
    }
    emm_stream_register(context, made);
    return made;
}

CUstream Streams::own_in(emm_context *context) noexcept {
    try {
        const std::lock_guard lock(own_mutex_);
        CUstream &own = own_[context];
        own = own ? own : make_own(context);
        return own;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

// --- captures ----------------------------------------------------------------------------------

void Streams::capture_begins(CUstream origin) {
    emm_status status = EMM_OK;
    emm_context *const context = context_of(origin, status);
    const std::lock_guard beginning(beginning_mutex_);
    if (!context || emm_capture_begin(context, origin) < 0) {
        return;
    }
    const std::lock_guard lock(mutex_);
    if (Stream *stream = entry_of(origin, context)) {
        stream->announced = true;
        stream->capture_id = 0;
        capturing_++;
    } else {
        emm_capture_end(context, origin);
    }
}

bool Streams::is_announced(CUstream stream) {
    const std::lock_guard lock(mutex_);
    const Stream *const known = find(stream);
    return known && known->announced;
}

uint64_t Streams::capture_of(CUstream stream) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    const CUresult result =
        driver_.get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

void Streams::capture_begun(CUstream origin, CUresult result) {
    const uint64_t id = result == CUDA_SUCCESS ? capture_of(origin) : 0;
    const std::lock_guard lock(mutex_);
    Stream *const stream = find(origin);
    if (!stream) {
        return;
    }
    stream->capture_id = id;
    if (result != CUDA_SUCCESS) {
        end_announcement(*stream);
    }
}

void Streams::waited(CUstream stream) {
    const uint64_t id = capture_of(stream);
    emm_status status = EMM_OK;
    emm_context *const context = id ? context_of(stream, status) : nullptr;
    if (!context) {
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        const Stream *const known = find(stream);
        if (known && known->announced) {
            return;
        }
    }
    capture_begins(stream);
    const std::lock_guard lock(mutex_);
    if (Stream *const joined = find(stream)) {
        joined->capture_id = id;
    }
}

void Streams::end_announcement(Stream &stream) {
    if (stream.announced) {
        stream.announced = false;
        capturing_--;
        emm_capture_end(stream.context, stream.handle);
    }
}

void Streams::capture_ended(CUstream origin) {
    const std::lock_guard lock(mutex_);
    Stream *const ended = find(origin);
    if (!ended) {
        return;
    }
    const uint64_t id = ended->capture_id;
    end_announcement(*ended);
    for (auto &[key, stream] : streams_) {
        if (id != 0 && stream.capture_id == id) {
            end_announcement(stream);
        }
    }
}

} // namespace emm::run
