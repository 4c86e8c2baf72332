#include "page_access.h"

#include <algorithm>

namespace emm::pool {
namespace {

CUmemAccessDesc access_of(int32_t device, uint32_t flags) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = static_cast<CUmemAccess_flags>(flags);
    return access;
}

} // namespace

// While it lives, its thread changes the access; the pool's lock is held when it begins and ends.
class PageAccess::Change {
public:
    explicit Change(PageAccess &access) : access_(access) { access_.changing_ = true; }
    ~Change() {
        access_.changing_ = false;
        access_.changed_.notify_all();
    }
    Change(const Change &) = delete;
    Change &operator=(const Change &) = delete;

private:
    PageAccess &access_;
};

PageAccess::PageAccess(ServedContext &context, const Heap &heap)
    : context_(context),
      heap_(heap), granted_{access_of(context.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)} {}

void PageAccess::await(Lock &lock) {
    changed_.wait(lock, [this] { return !changing_; });
}

// Sets access to each run that is mapped now, or, after a failure, to none. `granted_` has later
// mappings grant it too.
emm_status PageAccess::set(int32_t peer, uint32_t flags) {
    const CUmemAccessDesc wanted = access_of(peer, flags);
    CUresult result = CUDA_SUCCESS;
    const auto set_one = [&](const Run &run, const CUmemAccessDesc &access) {
        return context_.driver.cuMemSetAccess(run.first, run.second, &access, 1);
    };
    {
        Lock lock(context_.mutex);
        await(lock);
        const Change change(*this);
        changed_.wait(lock, [this] { return users_ == 0; });
        granted_.reserve(granted_.size() + 1);
        const std::vector<Run> runs = mapped_runs();
        {
            const CUmemAccessDesc before = of(peer);
            const Unlocked unlocked(lock);
            size_t done = 0;
            while (done < runs.size() && result == CUDA_SUCCESS) {
                result = set_one(runs[done], wanted);
                done += result == CUDA_SUCCESS;
            }
            while (result != CUDA_SUCCESS && done > 0) {
                set_one(runs[--done], before);
            }
        }
        if (result == CUDA_SUCCESS) {
            remember(wanted, flags != EMM_ACCESS_NONE);
        }
    }
    return result == CUDA_SUCCESS ? EMM_OK : context_.failed(result, "cuMemSetAccess");
}

std::vector<PageAccess::Run> PageAccess::mapped_runs() const {
    std::vector<Run> runs;
    for (Segment *s = heap_.first_segment(); s; s = heap_.next_segment(*s)) {
        const size_t first = runs.size(); // no run goes on from the segment before
        s->pieces.each([&](const Piece &piece) {
            if (piece.handle == 0) {
                return; // paused: no memory to grant
            }
            if (runs.size() > first && runs.back().first + runs.back().second == piece.address) {
                runs.back().second += piece.bytes;
            } else {
                runs.emplace_back(piece.address, piece.bytes);
            }
        });
    }
    return runs;
}

CUmemAccessDesc PageAccess::of(int32_t device) const {
    const auto known = std::find_if(granted_.begin(), granted_.end(),
                                    [&](const auto &each) { return each.location.id == device; });
    return known != granted_.end() ? *known : access_of(device, EMM_ACCESS_NONE);
}

void PageAccess::remember(const CUmemAccessDesc &wanted, bool granted) {
    granted_.erase(std::remove_if(granted_.begin(), granted_.end(),
                                  [&](const CUmemAccessDesc &known) {
                                      return known.location.id == wanted.location.id;
                                  }),
                   granted_.end());
    if (granted) {
        granted_.push_back(wanted);
    }
}

} // namespace emm::pool
