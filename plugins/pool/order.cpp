// Events: when one is recorded, what its completion means, and who must not be touched meanwhile.
#include "manager.h"

#include <chrono>
#include <thread>

namespace emm::pool {
namespace {

constexpr int context_events = 4; // outstanding at a time; the newest frees wait for a later one

} // namespace

void Manager::note(CUresult result) {
    if (is_sticky(result) || is_gone(result)) {
        CUresult none = CUDA_SUCCESS;
        lost_.compare_exchange_strong(none, result);
        serving_.store(0, std::memory_order_relaxed);
    }
}

// `bytes` have just been freed into the domain.
void Manager::touch(Domain &domain, uint64_t bytes) {
    domain.newest = clock_.now();
    domain.open_bytes += bytes;
    domain.open_frees++;
    list(domain);
}

void Manager::list(Domain &domain) {
    if (domain.order != Order::stream) {
        return;
    }
    const bool open = domain.newest > domain.completed;
    const bool askable =
        !domain.watches.empty() || (domain.registered && domain.newest > domain.sealed);
    if (open != domain.open.linked) {
        open ? open_.push_back(domain) : open_.remove(domain);
    }
    if (askable != domain.askable.linked) {
        askable ? askable_.push_back(domain) : askable_.remove(domain);
    }
}

Watch *Manager::spare_watch() {
    Watch *watch = spare_watches_.pop_front();
    return watch ? watch : new (std::nothrow) Watch;
}

// --- recording -----------------------------------------------------------------------------------

// Records an event on `stream`, which is the domain's and lives, after all that the domain has
// freed. The tag is closed first: a free that comes while the lock is away gets the next one.
bool Manager::seal(Lock &lock, Domain &domain, CUstream stream) {
    if (domain.newest <= domain.sealed) {
        return true;
    }
    Watch *watch = spare_watch();
    if (!watch || lost_ != CUDA_SUCCESS) {
        return false;
    }
    watch->tag = clock_.end_tag();
    domain.pins++;
    domain.references++;
    lock.unlock();
    const CUresult result = record(*watch, stream);
    lock.lock();
    domain.references--;
    if (--domain.pins == 0) {
        unpinned_.notify_all();
    }
    note(result);
    if (result != CUDA_SUCCESS) {
        spare_watches_.push_back(*watch);
        return false;
    }
    domain.watches.push_back(*watch);
    domain.sealed = watch->tag > domain.sealed ? watch->tag : domain.sealed;
    domain.open_bytes = 0;
    domain.open_frees = 0;
    domain.seals++;
    list(domain);
    return true;
}

// No lock is held.
CUresult Manager::record(Watch &watch, CUstream stream) {
    const Current current(driver_, context_, context_id_);
    CUresult result = current.result();
    if (result == CUDA_SUCCESS && !watch.event) {
        result = driver_.cuEventCreate(&watch.event, CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS && stream == nullptr) {
        // Says so, harmlessly, if an event here would invalidate the capture of a blocking stream.
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        result = driver_.cuStreamIsCapturing(stream, &status);
    }
    return result == CUDA_SUCCESS ? driver_.cuEventRecord(watch.event, stream) : result;
}

bool Manager::seal_if_reachable(Lock &lock, Domain &domain) {
    const bool reachable = domain.reachable() && (&domain != &streams_.legacy || announced_ == 0);
    return reachable && seal(lock, domain, domain.handle);
}

// Records an event after all work of the context. Not while a capture is announced: it would be
// invalidated. A driver older than 12.5 has no such event, and is waited for instead.
bool Manager::seal_all(Lock &lock) {
    int outstanding = 0;
    for (Watch *w = unordered_.watches.first(); w; w = unordered_.watches.next(*w)) {
        outstanding++;
    }
    if (unordered_.newest <= unordered_.sealed || outstanding >= context_events) {
        return false;
    }
    Watch *watch = seal_context(lock);
    if (watch && driver_.record_context_event) {
        unordered_.watches.push_back(*watch);
    } else if (watch) {
        finish_context(*watch);
    }
    return watch;
}

Watch *Manager::seal_context(Lock &lock) {
    Watch *watch = announced_ == 0 && lost_ == CUDA_SUCCESS ? spare_watch() : nullptr;
    if (!watch) {
        return nullptr;
    }
    watch->tag = clock_.end_tag();
    context_records_++;
    lock.unlock();
    const CUresult result = record_context(*watch);
    lock.lock();
    if (--context_records_ == 0) {
        unpinned_.notify_all();
    }
    note(result);
    if (result != CUDA_SUCCESS) {
        spare_watches_.push_back(*watch);
        return nullptr;
    }
    unordered_.sealed = watch->tag > unordered_.sealed ? watch->tag : unordered_.sealed;
    return watch;
}

// All work that the watch stands for is done.
void Manager::finish_context(Watch &watch) {
    const uint64_t tag = watch.tag;
    spare_watches_.push_back(watch);
    complete_all(tag);
}

CUresult Manager::record_context(Watch &watch) {
    const Current current(driver_, context_, context_id_);
    CUresult result = current.result();
    if (result == CUDA_SUCCESS && !driver_.record_context_event) {
        return driver_.cuCtxSynchronize();
    }
    if (result == CUDA_SUCCESS && !watch.event) {
        result = driver_.cuEventCreate(&watch.event, CU_EVENT_DISABLE_TIMING);
    }
    return result == CUDA_SUCCESS ? driver_.record_context_event(context_, watch.event) : result;
}

// --- asking --------------------------------------------------------------------------------------

// Even a query invalidates a capture in global mode.
CUresult Manager::ask(const Watch &watch) {
    const Relaxed relaxed(driver_);
    return driver_.cuEventQuery(watch.event);
}

// A stream that has nothing to do has completed all that was freed on it; asking that costs less
// than an event, and an answer comes at once. A blocking stream is not asked: the legacy stream's
// work may come before its own without being in it.
bool Manager::ask_idle(Lock &lock, Domain &domain) {
    if (!domain.nonblocking || !domain.reachable() || !driver_.cuStreamQuery ||
        lost_ != CUDA_SUCCESS) {
        return false;
    }
    const uint64_t tag = clock_.end_tag();
    domain.pins++;
    domain.references++;
    lock.unlock();
    CUresult result = CUDA_SUCCESS;
    {
        const Current current(driver_, context_, context_id_);
        const Relaxed relaxed(driver_);
        result = current.result();
        result = result == CUDA_SUCCESS ? driver_.cuStreamQuery(domain.handle) : result;
    }
    lock.lock();
    if (--domain.pins == 0) {
        unpinned_.notify_all();
    }
    domain.references--;
    note(result);
    if (result == CUDA_SUCCESS) {
        complete(domain, tag);
    }
    return result == CUDA_SUCCESS;
}

// Learns what is complete. A watch is out of the list while it is asked, so nobody else has it. One
// whose question failed stands for its frees still, and is asked again another time.
void Manager::poll(Lock &lock, Domain &domain) {
    domain.references++;
    List<Watch, &Watch::link> failed;
    while (Watch *watch = domain.watches.pop_front()) {
        lock.unlock();
        const CUresult result = ask(*watch);
        lock.lock();
        note(result);
        if (result == CUDA_ERROR_NOT_READY) {
            domain.watches.push_front(*watch);
            break;
        }
        if (result != CUDA_SUCCESS) {
            failed.push_front(*watch);
            continue;
        }
        const uint64_t tag = watch->tag;
        spare_watches_.push_back(*watch);
        &domain == &unordered_ ? complete_all(tag) : complete(domain, tag);
    }
    while (Watch *watch = failed.pop_front()) {
        domain.watches.push_front(*watch);
    }
    domain.references--;
    list(domain);
}

// Records what can be recorded and asks about everything. `with_context` belongs to calls that are
// unordered themselves: an unannounced capture is promised peace from all others.
void Manager::reap(Lock &lock, bool with_context) {
    if (with_context) {
        seal_all(lock);
    }
    ask_all(lock, true);
}

// Of the streams at most that many, those first that have not been asked for the longest.
void Manager::ask_all(Lock &lock, bool recording, size_t most) {
    poll(lock, unordered_);
    size_t count = 0;
    for (Domain *d = askable_.first(); d && count < most; d = askable_.next(*d)) {
        count++;
    }
    for (; count > 0 && !askable_.empty() && lost_ == CUDA_SUCCESS; count--) {
        Domain &domain = *askable_.first();
        askable_.remove(domain); // to the end: list() in poll puts it there
        domain.references++;
        if (recording) {
            seal_if_reachable(lock, domain);
        }
        poll(lock, domain);
        domain.references--;
        tidy(domain);
    }
}

// An event for what no other covers: of streams that have ended without a word, or cannot be given
// one. It gets a while to be complete, because what asks for it is about to give memory back.
void Manager::seal_what_is_left(Lock &lock) {
    constexpr int rounds = 50;
    constexpr auto pause = std::chrono::microseconds(20);
    bool left = unordered_.newest > unordered_.completed;
    for (const Domain *d = open_.first(); d && !left; d = open_.next(*d)) {
        left = d->newest > d->sealed;
    }
    Watch *watch = left && announced_ == 0 ? seal_context(lock) : nullptr;
    if (watch && !driver_.record_context_event) {
        finish_context(*watch);
    } else if (watch) {
        const uint64_t tag = watch->tag;
        unordered_.watches.push_back(*watch);
        poll(lock, unordered_);
        for (int i = 0; i < rounds && unordered_.completed < tag && lost_ == CUDA_SUCCESS; i++) {
            lock.unlock();
            std::this_thread::sleep_for(pause);
            lock.lock();
            poll(lock, unordered_);
        }
    }
}

// Whether everything that was freed before is complete: it is when this returns, unless a capture
// forbids it or the device has failed.
bool Manager::wait_for_all(Lock &lock) {
    Watch *watch = seal_context(lock);
    if (!watch) {
        return false;
    }
    lock.unlock();
    CUresult result = CUDA_SUCCESS;
    if (driver_.record_context_event) {
        const Relaxed relaxed(driver_);
        result = driver_.cuEventSynchronize(watch->event);
    }
    lock.lock();
    note(result);
    if (result != CUDA_SUCCESS && driver_.record_context_event) {
        unordered_.watches.push_back(*watch); // it stands for what was freed before it
        return false;
    }
    finish_context(*watch);
    return true;
}

// --- what follows --------------------------------------------------------------------------------

void Manager::complete(Domain &domain, uint64_t tag) {
    domain.references++;
    domain.completed = tag > domain.completed ? tag : domain.completed;
    heap_.complete(domain, tag);
    slabs_.complete(domain, tag);
    shelve(domain, tag);
    if (&domain == &unordered_) {
        complete_batches(tag);
    }
    while (UseRecord *record = domain.uses.first()) {
        if (record->tag > tag) {
            break;
        }
        domain.uses.remove(*record);
        advance(*record);
    }
    if (domain.order == Order::stream && !domain.registered) {
        slabs_.disband(domain);
    }
    domain.references--;
    list(domain);
}

void Manager::complete_all(uint64_t tag) {
    Domain *next = nullptr;
    for (Domain *domain = open_.first(); domain; domain = next) {
        next = open_.next(*domain);
        complete(*domain, tag);
        tidy(*domain);
    }
    complete(unordered_, tag);
}

// Takes freed memory with uses to the next thing that it waits for, at the end to its home.
Domain *Manager::advance(UseRecord &record) {
    if (record.exports > 0) {
        return nullptr;
    }
    while (!record.uses.empty()) {
        const Use use = record.uses.back();
        record.uses.pop_back();
        if (use.capture) {
            record.all_work = true;
            if (!use.capture->gone) {
                use.capture->uses.push_back(record);
                use.capture->references--;
                return nullptr;
            }
            drop_reference(*use.capture);
        } else if (!use.domain) {
            record.all_work = true;
        } else {
            use.domain->references--;
            const bool own = use.domain == record.home;
            if (!own && !record.all_work) {
                touch(*use.domain, 0);
                record.tag = use.domain->newest;
                use.domain->uses.push_back(record);
                return use.domain;
            }
            tidy(*use.domain);
        }
    }
    finish(record);
    return nullptr;
}

void Manager::finish(UseRecord &record) {
    Domain &home = *record.home;
    const Place place{record.block, record.slot};
    home.references--;
    waiting_of(place) -= place.size();
    give(place, record.all_work && &home != &everywhere_ ? unordered_ : home);
    uses_.remove(record);
    delete &record;
}

// Forgets a stream that left nothing behind. Registered ones stay until they retire.
void Manager::tidy(Domain &domain) {
    if (domain.order != Order::stream || domain.registered || domain.references > 0 ||
        domain.magazines > 0 || domain.capturing > 0 || domain.stale ||
        domain.newest > domain.completed || !domain.holds_nothing() || !domain.watches.empty() ||
        !domain.uses.empty() || !domain.host.empty()) {
        return;
    }
    list(domain);
    streams_.forget(domain);
}

} // namespace emm::pool
