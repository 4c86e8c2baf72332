#include "pages.h"

#include "backing/fill.h"
#include "backing/zones.h"
#include "policy/effort.h"

#include <algorithm>
#include <chrono>

namespace emm::pool {

// Incomplete memory that a request's stream may use at another place: the stream's own, and that of
// streams whose events it waits for. Their free pools stay as long as this object. The lock is held
// when it ends.
class Pages::OrderedPools {
public:
    explicit OrderedPools(StreamOrder &order) : order_(order) {
        pools_.reserve(1 + most_candidates);
    }
    ~OrderedPools() {
        for (StreamPool *each : held_) {
            order_.end_use(*each);
        }
    }
    OrderedPools(const OrderedPools &) = delete;
    OrderedPools &operator=(const OrderedPools &) = delete;

    void add(StreamPool &pool, uint64_t tag) { pools_.push_back({&pool, tag}); }
    void hold(StreamPool &pool) {
        held_.push_back(&pool);
        pool.hold();
    }
    bool cover(const Block &block) const {
        return std::any_of(pools_.begin(), pools_.end(), [&](const Heap::Ordered &each) {
            return each.pool == block.pool && block.tag <= each.tag;
        });
    }
    const std::vector<Heap::Ordered> &all() const { return pools_; }

private:
    StreamOrder &order_;
    std::vector<StreamPool *> held_;
    std::vector<Heap::Ordered> pools_;
};

// A container may forbid what the device supports, so spilling is tried once.
void Pages::begin_spill() {
    if (options_.spill == 0) {
        return;
    }
    std::vector<Piece> tried;
    Refused refused;
    tried.reserve(1);
    const CUresult result = PageDriver::can_spill(context_)
                                ? driver_.create({page_bytes}, tried, refused, true)
                                : CUDA_ERROR_NOT_SUPPORTED;
    for (const Piece &piece : tried) {
        driver_.release(piece, refused);
    }
    keep_refused(refused);
    context_.note_error(result);
    if (result == CUDA_SUCCESS) {
        holdings_.allow_spill(options_.spill);
        return;
    }
    char text[200];
    snprintf(text, sizeof text,
             "pool: no spill on device %d: the driver gives it no host memory behind addresses "
             "(%s)",
             context_.device, cuda::error_name(context_.driver, result));
    context_.host.log(EMM_LOG_WARN, text);
}

Block *Pages::take(StreamPool &pool, uint64_t bytes) {
    return take_of(pool, bytes, zone_for(options_, bytes));
}

// Memory taken at the beginning serves every size.
Block *Pages::take_of(StreamPool &pool, uint64_t bytes, Zone zone) {
    heap_.reserve_record();
    Block *block = heap_.take(pool, bytes, zone);
    if (block || zone != Zone::small) {
        return block;
    }
    const bool only_initial = holdings_.of_device() <= options_.initial;
    return heap_.take(pool, bytes, Zone::large,
                      only_initial ? UINT64_MAX : most_of_large_zone(options_.slack));
}

Block *Pages::grow(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes,
                   CUresult &result) {
    if (Block *block =
            await_idle(lock, pool, bytes, [&] { return !holdings_.awaits_pending(pool, bytes); })) {
        return block;
    }
    OrderedPools ordered(order_);
    if (has_places() && pool.order == Order::stream) {
        ordered.add(pool, UINT64_MAX);
    }
    if (!ordered.all().empty()) {
        wait_for_others(lock, pool, caller, bytes, true, ordered);
    }
    return fill_up(lock, pool, caller, bytes, zone_for(options_, bytes), ordered, result);
}

// Fills the missing bytes by new memory or by moves, until the zone has a block.
Block *Pages::fill_up(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes, Zone zone,
                      OrderedPools &ordered, CUresult &result) {
    // False: the driver has no more memory, so free memory elsewhere must suffice.
    bool at_ease = zone != Zone::spilled;
    for (int i = 1; i <= most_fills;) {
        access_.await(lock);
        const Heap::Room room =
            i < most_fills ? heap_.room_for(pool, bytes, zone) : heap_.room_alone(bytes, zone);
        if (!room.range) {
            result = add_addresses(lock, bytes, zone);
            if (result != CUDA_SUCCESS) {
                return nullptr;
            }
            continue;
        }
        i++;
        result = room.missing > 0 ? fill(lock, pool, room, at_ease, ordered) : CUDA_SUCCESS;
        Block *block = take_of(pool, bytes, zone);
        const bool again = is_exhausted(result) && at_ease;
        if (block || (result != CUDA_SUCCESS && !again)) {
            return block;
        }
        at_ease = at_ease && !again;
        if (again && !ordered.all().empty()) {
            wait_for_others(lock, pool, caller, bytes, false, ordered);
        }
    }
    result = no_memory_of_pool;
    return nullptr;
}

// Growing moves all idle memory already. Beside free memory of the small zone, fewer bytes may be
// missing.
Block *Pages::reclaim(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes, bool,
                      CUresult &result) {
    return_refused(lock);
    Block *block = grow(lock, pool, caller, bytes, result);
    const auto lacks_memory = [&] { return !block && is_exhausted(result); };
    if (lacks_memory() && zone_for(options_, bytes) == Zone::large) {
        access_.await(lock);
        const Heap::Room room = heap_.room_for(pool, bytes, Zone::small);
        if (room.beside) {
            result = fill(lock, pool, room, false, OrderedPools(order_));
            heap_.reserve_record();
            block = heap_.take(pool, bytes, Zone::small);
            result = block || result != CUDA_SUCCESS ? result : no_memory_of_pool;
        }
    }
    return lacks_memory() && holdings_.most_spilled() > 0 ? spill(lock, pool, caller, bytes, result)
                                                          : block;
}

// Takes host memory, idle host memory first. A piece of it needs one place only.
Block *Pages::spill(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes,
                    CUresult &result) {
    if (Block *block = take_of(pool, bytes, Zone::spilled)) {
        return block;
    }
    OrderedPools none(order_);
    return fill_up(lock, pool, caller, bytes, Zone::spilled, none, result);
}

CUresult Pages::take_initial(Lock &lock, uint64_t bytes) {
    const CUresult result = add_addresses(lock, bytes, Zone::large);
    return result == CUDA_SUCCESS
               ? fill(lock, order_.common(), heap_.room_for(order_.common(), bytes, Zone::large),
                      true, OrderedPools(order_))
               : result;
}

// Waits on the device for the streams whose pieces the request would get, as of their latest
// events. If no range has room, another one will be reserved, and all bytes of the request are
// missing there.
void Pages::wait_for_others(Lock &lock, const StreamPool &pool, const Caller &caller,
                            uint64_t bytes, bool may_grow, OrderedPools &ordered) {
    Heap::Room room = heap_.room_for(pool, bytes, zone_for(options_, bytes));
    room.missing = room.range ? room.missing : round_up(bytes, page_bytes);
    if (has_enough_idle(room, may_grow, ordered.all())) {
        return;
    }
    std::vector<Heap::Ordered> candidates = ordered.all();
    StreamPool *other = order_.first_incomplete();
    for (; other && candidates.size() <= most_candidates; other = order_.next_incomplete(*other)) {
        if (other != &pool && Heap::largest_block_of(*other) >= page_bytes) {
            candidates.push_back({other, other->recorded});
        }
    }
    std::vector<StreamPool *> owners;
    for (const IdlePiece &each : plan_for(room, may_grow, candidates).moved) {
        for (Block *block = each.block; each.pending && block && block->begin < each.piece.end();
             block = block->right) {
            const bool known = std::count(owners.begin(), owners.end(), block->pool) > 0;
            if (block->dirty() && !known && !ordered.cover(*block)) {
                owners.push_back(&owner_of(*block));
            }
        }
    }
    for (StreamPool *each : owners) {
        ordered.hold(*each);
    }
    for (StreamPool *each : owners) {
        const uint64_t tag = each->recorded;
        if (order_.wait_on_stream(lock, caller, *each, tag)) {
            ordered.add(*each, tag);
        }
    }
}

bool Pages::has_enough_idle(const Heap::Room &room, bool may_grow,
                            const std::vector<Heap::Ordered> &ordered) const {
    uint64_t found = may_grow ? new_bytes(room.missing, holdings_.allowance(room.missing),
                                          free_slack(options_.slack))
                              : 0;
    if (found < room.missing) {
        for (const IdlePiece &each : heap_.idle_pieces(room.beside, parts_to_move, ordered)) {
            found += each.piece.bytes;
        }
    }
    return found >= room.missing;
}

// A plan for the room, made of memory that is idle now. If there is no host memory for such a plan,
// the plan takes only new memory.
FillPlan Pages::plan_for(const Heap::Room &room, bool may_grow,
                         const std::vector<Heap::Ordered> &ordered) const {
    const bool spills = room.range && room.range->segment->spilled();
    Allowance allowed = spills ? holdings_.spill_allowance() : holdings_.allowance(room.missing);
    allowed.fills = is_filling(holdings_.requested(), caches_.live_bytes());
    FillRequest request;
    request.missing = room.missing;
    request.room = room.range ? room.range->size : room.missing;
    request.keeps = spills || moves_.returns_are_deferred();
    const auto fresh = [&](double part) {
        return may_grow ? new_bytes(room.missing, allowed, part) : 0;
    };
    request.fresh = fresh(free_slack(options_.slack));
    if (request.fresh == room.missing) {
        const uint64_t least = new_bytes(options_.segment, allowed, options_.slack);
        request.growth = std::max(growth_bytes(room.missing, allowed), least);
    }
    request.priced = piece_bytes(std::max(room.missing, request.growth), allowed);
    request.piece = piece_near_limit(request.priced, allowed);
    try {
        std::vector<IdlePiece> idle;
        if (request.fresh < room.missing) {
            idle = heap_.idle_pieces(room.beside, parts_to_move, ordered, spills);
        }
        FillPlan plan = plan_fill(request, idle);
        if (may_use_slack(room.missing, allowed.most) &&
            moved_ns_ + plan.cost() * pace_.factor() > allowance_ns()) {
            request.fresh = fresh(options_.slack);
            plan = plan_fill(request, idle);
        }
        return plan;
    } catch (const std::bad_alloc &) {
        return plan_growth(request);
    }
}

// The time that moving may have cost by now.
uint64_t Pages::allowance_ns() const {
    return moving_allowance(caches_.calls_served(), holdings_.requested());
}

// If a peer has got access since the request began, no piece gets a second place any more.
CUresult Pages::fill(Lock &lock, StreamPool &pool, const Heap::Room &room, bool may_grow,
                     const OrderedPools &ordered) {
    static const std::vector<Heap::Ordered> none;
    const FillPlan plan = plan_for(room, may_grow, has_places() ? ordered.all() : none);
    if (!holdings_.has_room_for(plan.created, plan.released_bytes(),
                                room.range->segment->spilled())) {
        return no_memory_of_pool;
    }
    return go_back(pool, plan, room) ? CUDA_SUCCESS : execute(lock, pool, plan, &room);
}

// If all planned pieces are mapped at the room already, side by side in any order, no driver call
// is needed.
bool Pages::go_back(StreamPool &pool, const FillPlan &plan, const Heap::Room &room) {
    const uint64_t begin = room.begin(plan.mapped);
    std::vector<IdlePiece> pieces = plan.moved;
    size_t found = 0;
    for (uint64_t at = begin; at < begin + plan.mapped; found++) {
        const Piece there = heap_.piece_at(at);
        const auto piece =
            std::find_if(pieces.begin() + ptrdiff_t(found), pieces.end(),
                         [&](const IdlePiece &each) { return each.piece.handle == there.handle; });
        if (there.address != at || there.role != Role::idle || piece == pieces.end()) {
            return false;
        }
        std::swap(pieces[found], *piece);
        at = there.end();
    }
    if (!has_places() || found == 0 || found < pieces.size() || !plan.released.empty()) {
        return false;
    }
    heap_.go_back(pieces, begin, pool);
    if (plan.has_pending()) {
        order_.mark_dirty(pool, 0, 0);
    }
    return true;
}

CUresult Pages::execute(Lock &lock, StreamPool &pool, const FillPlan &plan,
                        const Heap::Room *room) {
    const bool pending = plan.has_pending();
    if (pending) {
        order_.mark_dirty(pool, 0, 0);
    }
    const bool spills = room && room->range->segment->spilled();
    Fill work(heap_, plan, room, pool, access_.granted(), has_places() && !spills);
    const bool has_price = may_use_slack(plan.mapped, holdings_.most_with(0));
    const uint64_t more = plan.created - std::min(plan.created, plan.released_bytes());
    const Holdings::Arrival arrival(holdings_, more, spills);
    const PageAccess::Use use(access_);
    const Moves::Move move(moves_);
    CUresult result = CUDA_SUCCESS;
    uint64_t taken_ns = 0;
    {
        const Unlocked unlocked(lock);
        const auto begin = std::chrono::steady_clock::now();
        result = work.ask(driver_);
        taken_ns = uint64_t((std::chrono::steady_clock::now() - begin).count());
    }
    if (plan.only_moves()) {
        pace_.note(plan.least_ns(), taken_ns);
    }
    moved_ns_ += has_price ? plan.cost() * pace_.factor() : 0;
    context_.note_error(result);
    if (pending) {
        order_.mark_dirty(pool, 0, 0);
    }
    work.apply_results(holdings_);
    keep_refused(work.refused());
    return result;
}

CUresult Pages::add_addresses(Lock &lock, uint64_t bytes, Zone zone) {
    uint64_t held = 0;
    for (const Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        held += s->size;
    }
    CUresult result = no_memory_of_pool;
    std::unique_ptr<Segment> segment;
    {
        const Unlocked unlocked(lock);
        for (uint64_t size = address_bytes(bytes, held); size > 0 && is_exhausted(result);
             size = fewer_addresses(size, bytes)) {
            segment = reserve(size, zone, fewer_addresses(size, bytes) == 0, result);
        }
    }
    context_.note_error(result);
    if (segment) {
        heap_.add_addresses(*segment.release());
    }
    return result;
}

// If there is no host memory for the records of so many addresses, only the last try throws. No
// lock is held.
std::unique_ptr<Segment> Pages::reserve(uint64_t bytes, Zone zone, bool last, CUresult &result) {
    const CUdeviceptr base = driver_.reserve_addresses(bytes, result);
    if (result != CUDA_SUCCESS) {
        return nullptr;
    }
    try {
        auto segment = std::make_unique<Segment>(base, bytes, base, bytes);
        segment->zone = zone;
        segment->pieces = Pieces(base, bytes, zone == Zone::spilled);
        const Lock lock(context_.mutex);
        heap_.prepare(*segment);
        return segment;
    } catch (...) {
        driver_.free_addresses(base, bytes);
        if (last) {
            throw;
        }
        result = no_memory_of_pool;
        return nullptr;
    }
}

// --- other processes and devices -----------------------------------------------------------------

// All pieces of the range exist, because it is live.
ExportedRange Pages::range_of(const Segment &segment, uint64_t begin, uint64_t size) const {
    Piece piece = segment.pieces.at(begin);
    ExportedRange range{begin - piece.address, size, segment.driver_base, segment.driver_bytes, {}};
    range.parts.push_back({piece.handle, piece.bytes});
    while (piece.end() < begin + size) {
        piece = segment.pieces.at(piece.end());
        range.parts.push_back({piece.handle, piece.bytes});
    }
    return range;
}

emm_status Pages::serve(const ExportedRange &range, emm_ipc_handle &ret_handle) {
    if (!driver_.shares()) {
        return context_.host.fail(
            EMM_E_NOT_SUPPORTED, 0,
            "pool: growth=vmm exports memory by file descriptor, but the device or the host does "
            "not support this; growth=segment exports legacy handles");
    }
    emm_ipc_source source = {};
    source.struct_size = sizeof source;
    source.kind = EMM_IPC_FILE_DESCRIPTOR;
    source.parts = range.parts.data();
    source.part_count = range.parts.size();
    source.offset = range.offset;
    source.size = range.size;
    return context_.host.serve_ipc(context_.emm, &source, &ret_handle);
}

// The host closes its references to the pieces before another request may have them.
emm_status Pages::withdraw(const emm_ipc_handle &handle) {
    return handle.kind == EMM_IPC_FILE_DESCRIPTOR && driver_.shares()
               ? context_.host.withdraw_ipc(context_.emm, &handle)
               : EMM_OK;
}

emm_status Pages::set_access(int32_t peer, uint32_t flags) {
    return access_.set(peer, flags);
}

} // namespace emm::pool
