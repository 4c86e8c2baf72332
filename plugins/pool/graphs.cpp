// Memory of captures. What a graph may touch each time it runs is out of everybody else's reach
// until the graph, and every executable graph made of it, is gone.
#include "manager.h"

namespace emm::pool {
namespace {

// Runs in the driver: no driver call, no lock.
void CUDA_CB graph_is_gone(void *argument) {
    auto *fate = static_cast<Fate *>(argument);
    Mailbox *mailbox = fate->mailbox;
    mailbox->post(fate);
    mailbox->release();
}

} // namespace

// Makes sure that the capture is known and that its graph will say when it is gone. Threads that
// come meanwhile wait for the outcome: after a failure the next one tries again.
emm_status Manager::enter_capture(const Caller &caller) {
    uint64_t attempt = 0;
    {
        Lock lock(mutex_);
        for (;;) {
            const auto entry = captures_.find(caller.capture_id);
            if (entry == captures_.end()) {
                break;
            }
            if (entry->second->retained) {
                return EMM_OK;
            }
            unpinned_.wait(lock);
        }
        auto capture = std::make_unique<Capture>();
        capture->id = caller.capture_id;
        capture->attempt = attempt = ++attempts_;
        captures_.emplace(caller.capture_id, std::move(capture));
    }
    try {
        const emm_status status = retain_on_graph(caller, attempt);
        conclude_entry(caller.capture_id, attempt, status == EMM_OK);
        return status;
    } catch (...) {
        conclude_entry(caller.capture_id, attempt, false);
        throw;
    }
}

void Manager::conclude_entry(uint64_t capture_id, uint64_t attempt, bool retained) {
    const Lock lock(mutex_);
    const auto entry = captures_.find(capture_id);
    if (entry != captures_.end() && entry->second->attempt == attempt) {
        entry->second->retained = retained;
        if (!retained) {
            captures_.erase(entry); // which nobody else has used
        }
    }
    unpinned_.notify_all();
}

emm_status Manager::retain_on_graph(const Caller &caller, uint64_t attempt) {
    auto fate = std::make_unique<Fate>();
    fate->mailbox = mailbox_;
    fate->capture_id = caller.capture_id;
    fate->attempt = attempt;
    CUuserObject object = nullptr;
    CUresult result = driver_.cuUserObjectCreate(&object, fate.get(), graph_is_gone, 1,
                                                 CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
        return failed(result, "cuUserObjectCreate");
    }
    mailbox_->retain();
    fate.release(); // graph_is_gone will post it, now or when the graph goes
    result = driver_.cuGraphRetainUserObject(caller.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) {
        driver_.cuUserObjectRelease(object, 1);
        return failed(result, "cuGraphRetainUserObject");
    }
    return EMM_OK;
}

Domain &Manager::capture_domain(const Caller &caller) {
    const auto entry = captures_.find(caller.capture_id);
    if (entry == captures_.end()) {
        throw PluginError(EMM_E_CAPTURING, 0, "pool: the capture has ended meanwhile");
    }
    Capture &capture = *entry->second;
    if (const auto known = capture.domains.find(caller.key); known != capture.domains.end()) {
        return *known->second;
    }
    Domain *const domain = streams_.make();
    try {
        capture.domains.emplace(caller.key, domain);
    } catch (...) {
        streams_.recycle(*domain);
        throw;
    }
    domain->order = Order::capture;
    domain->capture = &capture;
    return *domain;
}

void Manager::hold(Place place, Capture &capture) {
    mark_waiting(place);
    if (place.slot) {
        capture.slots.push(*place.slot);
    } else {
        capture.blocks.push_back(*place.block);
    }
}

// Takes in what graphs have said. The lock is held.
void Manager::collect_graphs() {
    for (Fate *fate = mailbox_->collect(); fate;) {
        const auto entry = captures_.find(fate->capture_id);
        if (entry != captures_.end() && entry->second->attempt == fate->attempt &&
            !entry->second->gone) {
            finish_capture(*entry->second);
        }
        Fate *next = fate->next;
        delete fate;
        fate = next;
    }
}

// The graph is gone, and so is the last run of every executable graph made of it: the driver keeps
// what a graph retains for that long. What was allocated and freed inside is complete with that.
// What came from outside, or was freed there, may have other uses: it counts as freed unordered.
void Manager::finish_capture(Capture &capture) {
    capture.gone = true;
    capture.references++; // for as long as this function runs
    for (auto &[key, domain] : capture.domains) {
        heap_.complete(*domain, clock_.now());
        domain->capture = nullptr;
        if (domain->references == 0) {
            streams_.recycle(*domain);
        } // else the call that is under way does
    }
    capture.domains.clear();
    while (Block *block = capture.blocks.pop_front()) {
        Capture *owner = block->capture;
        waiting_of({block, nullptr}) -= block->size;
        if (owner && !owner->gone) { // freed in this capture, allocated in another that lives
            hold({block, nullptr}, *owner);
            continue;
        }
        block->capture = nullptr;
        give({block, nullptr}, unordered_);
        if (owner) {
            drop_reference(*owner);
        }
    }
    while (capture.slots.first) {
        Slot *slot = capture.slots.pop();
        waiting_ -= slot->slab->slot_size;
        give({nullptr, slot}, unordered_);
    }
    while (UseRecord *record = capture.uses.pop_front()) {
        advance(*record);
    }
    touch(unordered_, 0);
    drop_reference(capture);
}

// A call that has let go of the lock meanwhile is done with the domain.
void Manager::let_go(Domain &domain) {
    domain.references--;
    if (!drop_if_orphaned(domain)) {
        tidy(domain);
    }
}

// Its capture has ended while a call had it.
bool Manager::drop_if_orphaned(Domain &domain) {
    const bool orphaned =
        domain.order == Order::capture && !domain.capture && domain.references == 0;
    if (orphaned) {
        streams_.recycle(domain);
    }
    return orphaned;
}

// The record of a capture goes when its graph has gone and nothing points to it any more.
void Manager::drop_reference(Capture &capture) {
    if (--capture.references == 0 && capture.gone) {
        captures_.erase(capture.id);
    }
}

} // namespace emm::pool
