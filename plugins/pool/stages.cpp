// The stages of a request on its slow path, in the order of Request::find_block.
#include "request.h"

#include "backing/zones.h"
#include "policy/effort.h"

namespace emm::pool {

Block *Manager::Request::empty_own_magazines() {
    manager_.order_.collect_graphs();
    manager_.caches_.drain_own();
    return take();
}

bool Manager::Request::grows_unasked() const {
    const bool unordered = caller_.kind == StreamKind::none;
    return (unordered && may_grow_unasked(bytes_, manager_.holdings_.allowance(bytes_))) ||
           manager_.backing_->grows_first(bytes_);
}

Block *Manager::Request::query_unordered() {
    const bool asks = caller_.kind == StreamKind::none && manager_.order_.can_query_unordered() &&
                      is_worth_a_question(manager_.holdings_.allowance(bytes_));
    if (!asks) {
        return nullptr;
    }
    manager_.order_.record_and_query_unordered(lock_);
    return take();
}

Block *Manager::Request::query_best_fit() {
    Block *best = find_offered(false);
    if (!best) {
        return nullptr;
    }
    manager_.order_.record_and_query(lock_, owner_of(*best));
    return take();
}

Block *Manager::Request::query_all_streams() {
    manager_.order_.call_for_events();
    manager_.order_.record_and_query_all(lock_, caller_.kind == StreamKind::none);
    return manager_.served_.serves() ? take() : nullptr;
}

Block *Manager::Request::wait_for_stream() {
    if (pool_->order != Order::stream || !manager_.served_.serves()) {
        return nullptr;
    }
    Heap &heap = manager_.memory_.heap;
    StreamOrder &order = manager_.order_;
    heap.reserve_record();
    Block *block = find_offered(false); // there nearly always is an event
    if (block && !StreamOrder::has_event_for(owner_of(*block), block->tag)) {
        block = find_offered(true);
    }
    if (!block) {
        return nullptr;
    }
    StreamPool &other = owner_of(*block);
    const uint64_t tag = block->tag;
    Block *taken = heap.take_offered(*block, bytes_);
    other.hold();
    const bool waits = order.wait_on_stream(lock_, caller_, other, tag);
    if (!waits) {
        heap.give(*taken, other);
        order.mark_dirty(other, bytes_);
    }
    other.unhold();
    return waits ? taken : nullptr;
}

// The tightest free block of another stream that the request could have after waiting for that
// stream. With `with_event`, only blocks with an event to wait for.
Block *Manager::Request::find_offered(bool with_event) const {
    const StreamOrder &order = manager_.order_;
    const Zone zone = zone_for(manager_.options_, bytes_);
    SizeNode position;
    position.size = bytes_;
    const SizeNode *found = nullptr;
    StreamPool *other = zone == Zone::dedicated ? nullptr : order.first_incomplete();
    for (; other; other = order.next_incomplete(*other)) {
        const SizeNode *node =
            other == pool_ ? nullptr : Heap::offered_after(*other, position, zone);
        const auto is_better = [&] { return node && (!found || node->before(*found)); };
        for (int i = 1;
             with_event && is_better() && !StreamOrder::has_event_for(*other, node->block()->tag);
             i++) {
            node = i < most_candidates ? Heap::offered_after(*other, *node, zone) : nullptr;
        }
        found = is_better() ? node : found;
    }
    return found ? found->block() : nullptr;
}

Block *Manager::Request::empty_all_magazines() {
    if (!manager_.caches_.drain_all()) {
        return nullptr;
    }
    Block *block = take();
    block = block ? block : query_best_fit();
    return block ? block : query_all_streams();
}

// Used once the driver has refused. Repeated while other threads' memory comes back, but not for
// ever.
Block *Manager::Request::reclaim() {
    StreamOrder &order = manager_.order_;
    ThreadCaches &caches = manager_.caches_;
    Block *block = nullptr;
    bool others = false; // other threads have given memory back since
    for (int round = 0; is_exhausted() && round < most_reclaims && !block; round++) {
        const Moves::Watch watch(manager_.moves_);
        if (round > 0) {
            caller_.capturing ? order.wait_beside_captures(lock_) : order.wait_for_context(lock_);
        }
        caches.drain_all();
        caches.give_up_waiting_blocks(); // a segment may go back while work uses it
        manager_.drop_spares();
        const uint64_t calls = caches.calls_served();
        block = take_from_any_zone();
        block = block ? block
                      : manager_.backing_->reclaim(lock_, *pool_, caller_, bytes_, others, result_);
        block = block ? block : wait_for_stream();
        others = !block && round > 0 &&
                 (manager_.moves_.await(lock_, watch) ||
                  (calls != caches.calls_served() && bytes_ <= manager_.holdings_.idle_at_most()));
        if (round > 0 && !others) {
            break;
        }
    }
    return block;
}

// Zones keep memory together. If there is no other memory, zones do not matter any more.
Block *Manager::Request::take_from_any_zone() {
    Heap &heap = manager_.memory_.heap;
    const Zone zone = zone_for(manager_.options_, bytes_);
    Block *block = take();
    if (block || zone == Zone::dedicated) {
        return block;
    }
    block = heap.take(*pool_, bytes_, zone);
    if (!block && zone == Zone::small) {
        heap.sort_remnants_in();
    }
    return block ? block
                 : heap.take(*pool_, bytes_, zone == Zone::small ? Zone::large : Zone::small);
}

} // namespace emm::pool
