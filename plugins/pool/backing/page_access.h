// The devices that may use memory behind addresses: the pool's own, and peers. A peer gets access
// to everything mapped, and no thread maps or unmaps meanwhile.
#pragma once

#include "cuda/served_context.h"
#include "heap/heap.h"

#include <condition_variable>
#include <utility>
#include <vector>

namespace emm::pool {

class PageAccess {
public:
    PageAccess(ServedContext &context, const Heap &heap);
    PageAccess(const PageAccess &) = delete;
    PageAccess &operator=(const PageAccess &) = delete;

    // While it lives, its thread maps or unmaps. The pool's lock is held when it begins and ends,
    // and since await().
    class Use {
    public:
        explicit Use(PageAccess &access) : access_(access) { access_.users_++; }
        ~Use() {
            access_.users_--;
            access_.changed_.notify_all();
        }
        Use(const Use &) = delete;
        Use &operator=(const Use &) = delete;

    private:
        PageAccess &access_;
    };
    void await(Lock &lock); // until no thread changes the access
    const std::vector<CUmemAccessDesc> &granted() const { return granted_; }
    bool any_peer() const { return granted_.size() > 1; }

    emm_status set(int32_t peer, uint32_t flags); // no lock is held

private:
    using Run = std::pair<uint64_t, uint64_t>; // address and bytes
    class Change;

    std::vector<Run> mapped_runs() const;
    CUmemAccessDesc of(int32_t device) const; // granted to it now
    void remember(const CUmemAccessDesc &wanted, bool granted);

    ServedContext &context_;
    const Heap &heap_;
    std::vector<CUmemAccessDesc> granted_;
    std::condition_variable_any changed_;
    uint32_t users_ = 0;    // number of threads that map or unmap
    bool changing_ = false; // set only while users_ is 0
};

} // namespace emm::pool
