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

uintptr_t search_slowly(uintptr_t direct, uintptr_t behind) {
    uintptr_t addresses[deepest_stack];
    const size_t count = walk_slowly(behind, addresses, deepest_stack);
    CallerSearch search(direct);
    for (size_t i = 0; i < count; i++) {
        if (search.ends_at(addresses[i])) {
            return addresses[i];
        }
    }
    return direct;
}

} // namespace

const void *outer_caller_slowly(const void *direct) noexcept {
    const auto wanted = reinterpret_cast<uintptr_t>(direct);
    Frame frame = frame_here();
    const uintptr_t behind = frame.stack_pointer;
    CallerSearch search(wanted);
    bool is_known = true;
    for (size_t depth = 0; depth < deepest_stack && frame.leave(is_known); depth++) {
        if (search.ends_at(frame.place)) {
            return reinterpret_cast<const void *>(frame.place);
        }
    }
    return is_known ? direct : reinterpret_cast<const void *>(search_slowly(wanted, behind));
}

} // namespace emm::observe
