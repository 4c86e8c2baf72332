#pragma once

#include "types.h"
#include "uses.h"

#include <iterator>
#include <optional>

namespace emm::torch_backend {

// The state of a pool at the time of PyTorch's checkpoint.
struct PoolState : caching::AllocatorState {
    PoolState(MempoolId_t id, Chunks chunks) : id_(id), chunks_(std::move(chunks)) {}
    MempoolId_t id_;
    Chunks chunks_;
};

// The pools of one device, and those that PyTorch allocates to at present.
class Pools {
public:
    void retain(MempoolId_t id, std::shared_ptr<CUDAAllocator> source) {
        Lock guard(lock_);
        Pool &pool = pools_[id];
        pool.users_++;
        if (source) {
            pool.source_ = std::move(source);
        }
    }

    // False: the pool does not exist. `ret_over` gets the parts to give back.
    bool release(MempoolId_t id, GivenUp *ret_over) {
        Lock guard(lock_);
        auto found = pools_.find(id);
        if (found == pools_.end()) {
            return false;
        }
        found->second.users_--;
        *ret_over = shrink(found);
        return true;
    }

    // emm's pool behind it; NULL: none yet.
    emm_context *context(MempoolId_t id) {
        emm_context *context = nullptr;
        with(id, [&](const Pool &pool) { context = pool.context_; });
        return context;
    }

    // Whether the pool should have one: not if its memory is a foreign allocator's.
    bool wants_context(MempoolId_t id) {
        bool wants = false;
        with(id, [&](const Pool &pool) { wants = !pool.context_ && !pool.source_; });
        return wants;
    }

    // False: the pool has one by now, or does not exist.
    bool set_context(MempoolId_t id, emm_context *context) {
        bool is_set = false;
        with(id, [&](Pool &pool) {
            is_set = !pool.context_;
            pool.context_ = is_set ? context : pool.context_;
        });
        return is_set;
    }

    // False: the pool is open already.
    bool open(MempoolId_t id, Filter filter, bool announced) {
        Lock guard(lock_);
        if (find_open(id) != open_.end()) {
            return false;
        }
        pools_[id].is_captured_ |= announced;
        open_.push_back({id, std::move(filter), announced});
        open_count_.store(open_.size(), std::memory_order_release);
        return true;
    }

    // Whether emm was told of a capture; nothing: PyTorch does not allocate to this pool.
    std::optional<bool> close(MempoolId_t id) {
        Lock guard(lock_);
        const auto found = find_open(id);
        if (found == open_.end()) {
            return std::nullopt;
        }
        const bool announced = found->announced;
        open_.erase(found);
        open_count_.store(open_.size(), std::memory_order_release);
        return announced;
    }

    // Whether a capture is announced to emm.
    bool capturing() {
        Lock guard(lock_);
        return std::any_of(open_.begin(), open_.end(),
                           [](const Open &each) { return each.announced; });
    }

    // The pool for memory of `stream`, the innermost that wants it; no_pool: none.
    MempoolId_t receiving(cudaStream_t stream) {
        if (open_count_.load(std::memory_order_acquire) == 0) {
            return no_pool;
        }
        Lock guard(lock_);
        const auto found = std::find_if(open_.rbegin(), open_.rend(),
                                        [stream](const Open &each) { return each.filter(stream); });
        return found == open_.rend() ? no_pool : found->id;
    }

    // Counts an allocation of emm's in the pool, and gives the context to allocate from. NULL: a
    // pool with segments.
    emm_context *enter(MempoolId_t id) {
        Lock guard(lock_);
        Pool &pool = pools_[id];
        if (pool.uses_segments() || !pool.context_) {
            return nullptr;
        }
        pool.allocations_++;
        return pool.context_;
    }

    // The allocation is freed, or was not made.
    GivenUp leave(MempoolId_t id) {
        Lock guard(lock_);
        auto found = pools_.find(id);
        if (found == pools_.end()) {
            return {};
        }
        found->second.allocations_--;
        return shrink(found);
    }

    // Memory of a pool that others may use when memory is short, and the id of that pool.
    void *borrow(size_t size, cudaStream_t stream, MempoolId_t *ret_id) {
        Lock guard(lock_);
        for (auto &[id, pool] : pools_) {
            if (void *ptr = pool.lends() ? pool.take(size, stream) : nullptr) {
                *ret_id = id;
                return ptr;
            }
        }
        return nullptr;
    }

    // The pools that others may use when memory is short, and that have allocations of emm's.
    std::vector<MempoolId_t> lenders() {
        std::vector<MempoolId_t> found;
        each([&](MempoolId_t id, const Pool &pool) {
            if (pool.lends() && !pool.uses_segments() && pool.context_) {
                found.push_back(id);
            }
        });
        return found;
    }

    // Takes out idle segments that may be given back for a request in the pool `id`.
    std::vector<Segment> take_idle(MempoolId_t id) {
        std::vector<Segment> idle;
        each([&](MempoolId_t each, Pool &pool) {
            if (pool.may_shrink(each == id)) {
                std::vector<Segment> its_own = pool.take_idle();
                std::move(its_own.begin(), its_own.end(), std::back_inserter(idle));
            }
        });
        return idle;
    }

    void *take(MempoolId_t id, size_t size, cudaStream_t stream) {
        Lock guard(lock_);
        return pools_[id].take(size, stream);
    }

    // Before the pool can serve `size`, it needs a segment from emm or from its own allocator. This
    // plans the segment.
    Segment plan(MempoolId_t id, size_t size) {
        Lock guard(lock_);
        const Pool &pool = pools_[id];
        return {nullptr, pool.segment_size(size), pool.source_, pool.context_};
    }

    void *adopt(MempoolId_t id, Segment segment, size_t size, cudaStream_t stream) {
        Lock guard(lock_);
        Pool &pool = pools_[id];
        pool.adopt(std::move(segment), stream);
        return pool.take(size, stream);
    }

    // Gives the other streams that may still use the memory; then await() makes the memory wait for
    // them.
    std::vector<Stream> put(MempoolId_t id, void *ptr, GivenUp *ret_over) {
        Lock guard(lock_);
        auto found = pools_.find(id);
        if (found == pools_.end()) {
            return {};
        }
        std::vector<Stream> users = found->second.put(ptr);
        *ret_over = shrink(found);
        return users;
    }

    void await(MempoolId_t id, void *ptr, Uses uses) {
        Lock guard(lock_);
        const auto found = pools_.find(id);
        if (found != pools_.end() && found->second.chunks().count(static_cast<char *>(ptr))) {
            waiting_.push_back({id, ptr, std::move(uses)});
        }
    }

    // Makes a part available if all streams have finished their work on it.
    void collect() {
        Lock guard(lock_);
        const auto over = std::remove_if(waiting_.begin(), waiting_.end(), [this](Waiting &each) {
            if (!each.uses.are_over()) {
                return false;
            }
            pools_[each.id].release(each.ptr);
            return true;
        });
        waiting_.erase(over, waiting_.end());
    }

    void share(MempoolId_t id, void *ptr, Stream user) {
        with(id, [ptr, user](Pool &pool) { pool.share(ptr, user); });
    }

    // Rewinds a pool and gives its former chunks. Chunks that wait do so until the pool's end.
    // Nothing: the pool, or one of its segments, does not exist.
    std::optional<Chunks> restore(MempoolId_t id, const Chunks &earlier) {
        Lock guard(lock_);
        auto found = pools_.find(id);
        if (found == pools_.end() || !found->second.holds_segments_of(earlier)) {
            return std::nullopt;
        }
        Chunks before = found->second.chunks();
        found->second.restore(earlier);
        stop_waiting(id, {});
        return before;
    }

    // Calls `function` with a pool, if it exists.
    template <class Function> bool with(MempoolId_t id, Function function) {
        Lock guard(lock_);
        auto found = pools_.find(id);
        if (found != pools_.end()) {
            function(found->second);
        }
        return found != pools_.end();
    }

    template <class Function> void each(Function function) {
        Lock guard(lock_);
        for (auto &[id, pool] : pools_) {
            function(id, pool);
        }
    }

private:
    using Table = std::map<MempoolId_t, Pool>;

    struct Open {
        MempoolId_t id;
        Filter filter;
        bool announced; // to emm, as a capture
    };

    std::vector<Open>::iterator find_open(MempoolId_t id) {
        return std::find_if(open_.begin(), open_.end(),
                            [id](const Open &each) { return each.id == id; });
    }

    GivenUp shrink(Table::iterator pool) {
        GivenUp over{pool->second.take_unneeded(), nullptr};
        if (!over.segments.empty()) {
            stop_waiting(pool->first, pool->second.chunks());
        }
        if (pool->second.is_over()) {
            over.context = pool->second.context_;
            pools_.erase(pool);
        }
        return over;
    }

    // Except for these.
    void stop_waiting(MempoolId_t id, const Chunks &kept) {
        const auto is_gone = [&](const Waiting &each) {
            return each.id == id && !kept.count(static_cast<char *>(each.ptr));
        };
        waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_gone), waiting_.end());
    }

    struct Waiting {
        MempoolId_t id;
        void *ptr;
        Uses uses;
    };

    std::mutex lock_;
    Table pools_;
    std::vector<Waiting> waiting_;
    std::vector<Open> open_;
    std::atomic<size_t> open_count_{0};
};

} // namespace emm::torch_backend
