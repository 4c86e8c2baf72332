// What the program says about its streams.
#include "stream_order.h"

namespace emm::pool {

emm_status StreamOrder::enter_stream(emm_stream stream) {
    if (is_known_without_notice(stream)) {
        return EMM_OK;
    }
    const Driver &driver = context_.driver;
    if (cuda::is_foreign(driver, context_.handle, stream)) {
        return refuse_foreign();
    }
    unsigned long long id = 0;
    const CUresult result = driver.cuStreamGetId(stream, &id);
    if (result != CUDA_SUCCESS) {
        return context_.failed(result, "cuStreamGetId");
    }
    unsigned flags = CU_STREAM_DEFAULT;
    if (driver.cuStreamGetFlags && driver.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS) {
        flags = CU_STREAM_DEFAULT;
    }
    const Lock lock(mutex_);
    Domain *former = streams_.find_registered(stream);
    if (former && former->key_ == id) {
        return EMM_OK;
    }
    Domain &domain = streams_.find_or_make(id);
    if (former) { // its stream was destroyed without a word, and the handle came back
        memory_.close_magazines(*former);
        unregister(*former);
        forget_if_idle(*former);
    }
    streams_.enter(domain, stream);
    domain.nonblocking_ = (flags & CU_STREAM_NON_BLOCKING) != 0;
    registrations_.fetch_add(1, std::memory_order_release);
    relink(domain);
    return EMM_OK;
}

void StreamOrder::unregister(Domain &domain) {
    streams_.leave(domain);
    relink(domain);
    memory_.disband(domain);
}

// The stream's last moment: what it freed gets its event now, and what it kept serves all streams.
emm_status StreamOrder::retire_stream(emm_stream stream) {
    Lock lock(mutex_);
    Domain *domain = streams_.find_registered(stream);
    if (!domain) {
        return EMM_OK;
    }
    domain->references_++;
    memory_.close_magazines(*domain);
    memory_.drop_spares(*domain);
    record_event_if_reachable(lock, *domain);
    unpinned_.wait(lock, [domain] { return domain->pins_ == 0; });
    unregister(*domain);
    domain->references_--;
    forget_if_idle(*domain);
    return EMM_OK;
}

// When this returns no other thread is recording an event that the capture would not survive.
void StreamOrder::begin_capture(emm_stream stream) {
    Lock lock(mutex_);
    // What earlier graphs had can be had in this capture. No event is recorded on the context: it
    // would invalidate the captures that are not announced.
    query(lock, unordered_);
    collect_graphs();
    announced_++;
    Domain *domain = streams_.find_registered(stream);
    if (domain) {
        memory_.close_magazines(*domain);
        domain->capturing_++;
        domain->announced_ = stream;
        domain->references_++;
    }
    unpinned_.wait(lock, [this, domain] {
        return context_records_ == 0 && streams_.legacy.pins_ == 0 &&
               (!domain || domain->pins_ == 0);
    });
    if (domain) {
        domain->references_--;
    }
}

void StreamOrder::end_capture(emm_stream stream) {
    Lock lock(mutex_);
    announced_ -= announced_ > 0 ? 1 : 0;
    Domain *domain = streams_.find_registered(stream);
    if (!domain || domain->capturing_ == 0) {
        domain = streams_.find_announced(stream); // which has retired since
    }
    if (domain) {
        domain->capturing_--;
        relink(*domain);
        forget_if_idle(*domain);
    }
    query(lock, unordered_);
}

} // namespace emm::pool
