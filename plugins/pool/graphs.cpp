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

// Makes sure that the capture is known and that its graph will say when it is gone.
emm_status Manager::enter_capture(const Caller &caller) {
    {
        const Lock lock(mutex_);
        if (captures_.count(caller.capture_id)) {
            return EMM_OK;
        }
        auto capture = std::make_unique<Capture>();
        capture->id = caller.capture_id;
        captures_.emplace(caller.capture_id, std::move(capture));
    }
    const auto forget = [&] {
        const Lock lock(mutex_);
        const auto entry = captures_.find(caller.capture_id);
        if (entry != captures_.end()) {
            finish_capture(*entry->second);
        }
    };
    try {
        const emm_status status = retain_on_graph(caller);
        if (status != EMM_OK) {
            forget();
        }
        return status;
    } catch (...) {
        forget();
        throw;
    }
}

emm_status Manager::retain_on_graph(const Caller &caller) {
    auto fate = std::make_unique<Fate>();
    fate->mailbox = mailbox_;
    fate->capture_id = caller.capture_id;
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
    Capture &capture = *captures_.at(caller.capture_id);
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
        if (entry != captures_.end() && !entry->second->gone) {
            finish_capture(*entry->second);
        }
        Fate *next = fate->next;
        delete fate;
        fate = next;
    }
}

// The graph is gone, but its last run may not be over: its memory counts as freed unordered.
void Manager::finish_capture(Capture &capture) {
    capture.gone = true;
    capture.references++; // for as long as this function runs
    for (auto &[key, domain] : capture.domains) {
        heap_.move_all(*domain, unordered_);
        streams_.recycle(*domain);
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

// The record of a capture goes when its graph has gone and nothing points to it any more.
void Manager::drop_reference(Capture &capture) {
    if (--capture.references == 0 && capture.gone) {
        captures_.erase(capture.id);
    }
}

} // namespace emm::pool
