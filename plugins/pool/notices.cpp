// Which stream a call means, and what the program says about its streams.
#include "manager.h"

namespace emm::pool {
namespace {

const CUstream legacy_handle = reinterpret_cast<CUstream>(uintptr_t(1));
const CUstream per_thread_handle = reinterpret_cast<CUstream>(uintptr_t(2));

bool is_legacy(CUstream stream) {
    return stream == nullptr || stream == legacy_handle;
}

} // namespace

emm_status Manager::failed(CUresult result, const char *call) {
    note(result);
    if (is_sticky(result)) {
        return emm_failf(&host_, EMM_E_DEVICE_LOST, result,
                         "pool: %s met a sticky device error (%d); no memory is reused", call,
                         int(result));
    }
    if (is_gone(result)) {
        return emm_failf(&host_, EMM_E_RETIRED, result,
                         "pool: %s says that the context or the driver has gone (%d)", call,
                         int(result));
    }
    return emm_failf(&host_, EMM_E_DRIVER, result, "pool: %s failed with driver result %d", call,
                     int(result));
}

emm_status Manager::refuse_foreign() {
    return host_.fail(EMM_E_INVALID_VALUE, 0,
                      "pool: the stream belongs to another context, whose work is in no order with "
                      "this one's; nothing was done");
}

// The domain to allocate for, where that takes no driver call to find out; else NULL. The lock is
// held.
Domain *Manager::known(emm_stream stream) {
    if (stream == EMM_STREAM_UNORDERED) {
        return &anyone_;
    }
    if (is_legacy(stream)) {
        return &streams_.legacy;
    }
    Domain *domain = streams_.find_registered(stream);
    return domain && domain->reachable() ? domain : nullptr;
}

// The domain of a call, once its stream is identified. The lock is held.
Domain &Manager::domain_of(const Caller &caller) {
    if (caller.visitor == Visitor::nobody) {
        return anyone_;
    }
    if (caller.visitor == Visitor::legacy) {
        return streams_.legacy;
    }
    if (caller.capturing) {
        return capture_domain(caller);
    }
    if (caller.key >= Streams::thread_keys) {
        Thread::remember_own_stream(number_);
    }
    return streams_.find_or_make(caller.key);
}

// No lock is held. The stream lives, because the call that carries it has not returned.
emm_status Manager::identify(emm_stream stream, Caller &ret_caller) {
    Caller caller;
    if (stream == EMM_STREAM_UNORDERED) {
        ret_caller = caller;
        return EMM_OK;
    }
    caller.stream = is_legacy(stream) ? nullptr : stream;
    caller.visitor = is_legacy(stream) ? Visitor::legacy : Visitor::passing;
    bool may_capture = caller.visitor == Visitor::passing;
    if (caller.visitor == Visitor::passing) {
        const Lock lock(mutex_);
        if (const Domain *domain = streams_.find_registered(stream)) {
            caller.visitor = Visitor::registered;
            caller.key = domain->key;
            may_capture = !domain->reachable();
        }
    }
    emm_status status = EMM_OK;
    if (caller.visitor == Visitor::passing) {
        status = ask_identity(caller);
    } else if (may_capture) {
        status = ask_capture(caller);
    }
    if (status == EMM_OK) {
        ret_caller = caller;
    }
    return status;
}

emm_status Manager::ask_identity(Caller &caller) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (caller.stream == per_thread_handle) {
        const Current current(driver_, context_,
                              context_id_); // which thread's, and in which context
        caller.key = thread_key();
        const CUresult result = driver_.cuStreamIsCapturing(caller.stream, &status);
        if (result != CUDA_SUCCESS) {
            return failed(result, "cuStreamIsCapturing");
        }
        return status == CU_STREAM_CAPTURE_STATUS_NONE ? EMM_OK : ask_capture(caller);
    }
    if (cuda::is_foreign(driver_, context_, caller.stream)) {
        return refuse_foreign();
    }
    CUresult result = driver_.cuStreamIsCapturing(caller.stream, &status);
    if (result != CUDA_SUCCESS) {
        return failed(result, "cuStreamIsCapturing");
    }
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
        // A capturing stream refuses to tell its id; within its capture the handle will do.
        caller.key = reinterpret_cast<uintptr_t>(caller.stream);
        return ask_capture(caller);
    }
    unsigned long long id = 0;
    result = driver_.cuStreamGetId(caller.stream, &id);
    if (result != CUDA_SUCCESS) {
        return failed(result, "cuStreamGetId");
    }
    caller.key = id;
    return EMM_OK;
}

emm_status Manager::ask_capture(Caller &caller) {
    if (!driver_.serves_captures()) {
        return host_.fail(EMM_E_CAPTURING, 0,
                          "pool: the driver lacks what memory on a capturing stream needs");
    }
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUresult result =
        driver_.capture_info(caller.stream, &status, &id, &graph, nullptr, nullptr);
    if (result != CUDA_SUCCESS) {
        return failed(result, "cuStreamGetCaptureInfo");
    }
    if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
        return host_.fail(EMM_E_CAPTURING, 0,
                          "pool: the stream's capture has been invalidated; end it first");
    }
    caller.capturing = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    caller.capture_id = id;
    caller.graph = graph;
    return EMM_OK;
}

// --- notices -------------------------------------------------------------------------------------

emm_status Manager::stream_notice(emm_stream stream, uint32_t notice) {
    switch (notice) {
    case EMM_STREAM_REGISTERED:
        return enter_stream(stream);
    case EMM_STREAM_RETIRING:
        return retire_stream(stream);
    case EMM_STREAM_CAPTURE_BEGINS: {
        Lock lock(mutex_);
        begin_capture(lock, stream);
        return EMM_OK;
    }
    case EMM_STREAM_CAPTURE_ENDS: {
        Lock lock(mutex_);
        end_capture(stream);
        poll(lock, unordered_);
        return EMM_OK;
    }
    default:
        return EMM_OK; // a notice of a later version
    }
}

emm_status Manager::enter_stream(emm_stream stream) {
    if (is_legacy(stream) || stream == per_thread_handle || stream == EMM_STREAM_UNORDERED) {
        return EMM_OK; // known without being registered
    }
    if (cuda::is_foreign(driver_, context_, stream)) {
        return refuse_foreign();
    }
    unsigned long long id = 0;
    const CUresult result = driver_.cuStreamGetId(stream, &id);
    if (result != CUDA_SUCCESS) {
        return failed(result, "cuStreamGetId");
    }
    unsigned flags = CU_STREAM_DEFAULT;
    if (driver_.cuStreamGetFlags && driver_.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS) {
        flags = CU_STREAM_DEFAULT;
    }
    const Lock lock(mutex_);
    Domain *former = streams_.find_registered(stream);
    if (former && former->key == id) {
        return EMM_OK;
    }
    Domain &domain = streams_.find_or_make(id);
    if (former) { // its stream was destroyed without a word, and the handle came back
        close_magazines(former);
        streams_.leave(*former);
        list(*former);
        slabs_.disband(*former);
        tidy(*former);
    }
    streams_.enter(domain, stream);
    domain.nonblocking = (flags & CU_STREAM_NON_BLOCKING) != 0;
    registrations_.fetch_add(1, std::memory_order_release);
    list(domain);
    return EMM_OK;
}

// The stream's last moment: what it freed gets its event now, and what it kept goes to everybody.
emm_status Manager::retire_stream(emm_stream stream) {
    Lock lock(mutex_);
    Domain *domain = streams_.find_registered(stream);
    if (!domain) {
        return EMM_OK;
    }
    domain->references++;
    close_magazines(domain);
    slabs_.drop_spares(*domain);
    seal_if_reachable(lock, *domain);
    unpinned_.wait(lock, [domain] { return domain->pins == 0; });
    streams_.leave(*domain);
    list(*domain);
    slabs_.disband(*domain);
    domain->references--;
    tidy(*domain);
    return EMM_OK;
}

// When this returns no other thread is recording an event that the capture would not survive.
void Manager::begin_capture(Lock &lock, emm_stream stream) {
    // What earlier graphs had can be had in this capture. No event is recorded on the context: it
    // would invalidate the captures that are not announced.
    poll(lock, unordered_);
    collect_graphs();
    announced_++;
    Domain *domain = streams_.find_registered(stream);
    if (domain) {
        close_magazines(domain);
        domain->capturing++;
        domain->announced = stream;
        domain->references++;
    }
    unpinned_.wait(lock, [this, domain] {
        return context_records_ == 0 && streams_.legacy.pins == 0 && (!domain || domain->pins == 0);
    });
    if (domain) {
        domain->references--;
    }
}

void Manager::end_capture(emm_stream stream) {
    announced_ -= announced_ > 0 ? 1 : 0;
    Domain *domain = streams_.find_registered(stream);
    if (!domain || domain->capturing == 0) {
        domain = streams_.find_announced(stream); // which has retired since
    }
    if (domain) {
        domain->capturing--;
        list(*domain);
        tidy(*domain);
    }
}

// --- further uses --------------------------------------------------------------------------------

emm_status Manager::record_use(emm_deviceptr ptr, size_t, emm_stream stream) {
    Caller caller;
    emm_status status = identify(stream, caller);
    if (status == EMM_OK && caller.capturing) {
        status = enter_capture(caller);
    }
    if (status != EMM_OK) {
        return status;
    }
    Lock lock(mutex_);
    Place place = lent_at(ptr);
    for (const auto &pool : hosts_) { // mapped host memory has one name for both sides
        place = !place && pool ? pool->lent_at(ptr) : place;
    }
    if (!place) {
        lock.unlock();
        return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                         "pool: record_use of 0x%llx, where no live allocation begins", ptr);
    }
    Use use = {nullptr, nullptr};
    if (caller.capturing) {
        use.capture = capture_domain(caller).capture;
    } else if (caller.visitor != Visitor::nobody) {
        use.domain = &domain_of(caller);
    }
    add_use(place, use);
    // A stream that nobody registered has its event now, for what was freed since its last one.
    if (caller.visitor == Visitor::passing && use.domain) {
        seal(lock, *use.domain, caller.stream);
    }
    return EMM_OK;
}

// The calling thread ends, and its own stream with it: what was freed there gets its event now.
void Manager::end_own_stream() {
    Lock lock(mutex_);
    Domain *domain = lost_ == CUDA_SUCCESS ? streams_.find(thread_key()) : nullptr;
    if (!domain || domain->stale) {
        return;
    }
    domain->references++;
    if (domain->newest > domain->sealed) {
        lock.unlock();
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        {
            const Current current(driver_, context_, context_id_);
            if (current.result() != CUDA_SUCCESS ||
                driver_.cuStreamIsCapturing(per_thread_handle, &status) != CUDA_SUCCESS) {
                status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
            }
        }
        lock.lock();
        if (status == CU_STREAM_CAPTURE_STATUS_NONE) {
            seal(lock, *domain, per_thread_handle);
        }
    }
    let_go(*domain);
}

UseRecord &Manager::record_of(Place place) {
    UseRecord *&record = place.uses();
    if (!record) {
        auto fresh = std::make_unique<UseRecord>();
        fresh->uses.reserve(4);
        fresh->block = place.block;
        fresh->slot = place.slot;
        record = fresh.release();
        uses_.push_back(*record);
    }
    place.mark_special();
    return *record;
}

void Manager::add_use(Place place, Use use) {
    UseRecord &record = record_of(place);
    for (const Use &known : record.uses) {
        if (known.domain == use.domain && known.capture == use.capture) {
            return;
        }
    }
    record.uses.reserve(record.uses.size() + 3); // the free may add two and must not fail
    record.uses.push_back(use);
    if (use.domain) {
        use.domain->references++;
    }
    if (use.capture) {
        use.capture->references++;
    }
}

} // namespace emm::pool
