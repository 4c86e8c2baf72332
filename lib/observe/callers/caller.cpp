#include "observe/callers/caller.h"

namespace emm::observe {
namespace {

// Takes the return addresses of a stack, from the innermost.
class CallerSearch {
public:
    explicit CallerSearch(uintptr_t direct) : direct_(direct) {}

    // True: this is the call that was looked for.
    bool ends_at(uintptr_t address) {
        has_passed_direct_ = has_passed_direct_ || address == direct_;
        if (!has_passed_direct_) {
            return false;
        }
        const CodeRange *const range = modules().find(address);
        return !range || !range->is_passing;
    }

private:
    const uintptr_t direct_;
    bool has_passed_direct_ = false; // before it are emm's own
};

} // namespace

const void *outer_caller_slowly(const void *direct) noexcept {
    Frame frame = frame_here();
    CallerSearch search(reinterpret_cast<uintptr_t>(direct));
    for (size_t depth = 0; depth < deepest_stack && frame.leave(); depth++) {
        if (search.ends_at(frame.place)) {
            return reinterpret_cast<const void *>(frame.place);
        }
    }
    return direct;
}

} // namespace emm::observe
