#include "capture.h"

namespace emm::pool {

void Mailbox::release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete this;
    }
}

Mailbox::~Mailbox() {
    for (Fate *fate = collect(); fate;) {
        Fate *next = fate->next;
        delete fate;
        fate = next;
    }
}

void Mailbox::post(Fate *fate) {
    fate->next = letters_.load(std::memory_order_relaxed);
    while (!letters_.compare_exchange_weak(fate->next, fate, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    }
}

} // namespace emm::pool
