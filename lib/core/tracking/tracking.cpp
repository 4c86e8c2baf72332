#include "core/tracking/tracking.h"

#include "dl/load.h"
#include "observe/callers/python_frames.h"
#include "observe/callers/stacks.h"
#include "observe/callers/walk.h"
#include "observe/environment.h"
#include "observe/error.h"
#include "observe/events/clock.h"
#include "observe/log.h"
#include "observe/process.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <sys/syscall.h>
#include <unistd.h>
#include <unordered_map>

namespace emm::core {
namespace {

using observe::TrackDepth;

// The interval between looks for unloaded libraries, in ticks of the clock: 2 to 10 ms on today's
// machines.
constexpr uint64_t ticks_between_looks = 10'000'000;

struct Tracker {
    const observe::TrackOptions options;
    const double ns_per_tick;
    TrackedTable table;
    std::atomic<uint64_t> lost{0};
    std::atomic<uint64_t> next_look{0}; // ticks

    std::mutex driver_memory_mutex; // for the two members below
    std::unordered_map<uint64_t, DriverMemory> driver_memory;
    uint64_t last_id = 0;

    explicit Tracker(const observe::TrackOptions &chosen)
        : options(chosen), ns_per_tick(observe::nanoseconds_per_event_tick()) {}
};

constexpr const char *not_tracked =
    "allocations are not tracked; start the program with EMM_TRACK=module or EMM_TRACK=stack";

// Set once, before track_depth announces it. Never destroyed, because calls come until the very
// end.
constinit std::atomic<Tracker *> the_tracker{nullptr};

Tracker &tracker() noexcept {
    return *the_tracker.load(std::memory_order_relaxed);
}

observe::TrackOptions wanted_options() {
    observe::TrackOptions options;
    observe::parse_track_options(observe::setting("EMM_TRACK"), options);
    return options;
}

// NULL: tracking is off.
Tracker *make_tracker() noexcept {
    alignas(Tracker) static std::byte storage[sizeof(Tracker)];
    try {
        const observe::TrackOptions options = wanted_options();
        if (options.depth == TrackDepth::none) {
            return nullptr;
        }
        observe::find_python_frames(&dl::find_in_process);
        return new (storage) Tracker(options);
    } catch (const std::bad_alloc &) {
        observe::log(EMM_LOG_WARN, "EMM_TRACK: no host memory to read it; nothing is tracked");
        return nullptr;
    }
}

// Trivial, because ending threads use it; initial-exec, because a look at it must not be a function
// call.
struct OfThread {
    uint32_t number = 0;
    uint32_t random = 0;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local OfThread of_thread;

void begin_thread() noexcept {
    of_thread.number = static_cast<uint32_t>(syscall(SYS_gettid));
    of_thread.random = of_thread.number * 2654435761u | 1;
}

// Chooses one of `sample` allocations by chance, because a regular choice could follow the
// program's own rhythm.
bool is_chosen(uint32_t sample) noexcept {
    uint32_t &random = of_thread.random; // xorshift32
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return uint64_t(random) * sample >> 32 == 0;
}

void look_for_unloads(Tracker &all, uint64_t now) noexcept {
    uint64_t due = all.next_look.load(std::memory_order_relaxed);
    if (now >= due && all.next_look.compare_exchange_strong(due, now + ticks_between_looks,
                                                            std::memory_order_relaxed)) {
        observe::modules().notice_unloads();
    }
}

// The stack from `caller` outwards.
[[gnu::noinline]] const observe::Stack *stack_behind(const void *caller) noexcept {
    constexpr size_t most_inside = 16; // of emm's own
    uint64_t words[most_inside + observe::deepest_stack + observe::deepest_python];
    static_assert(sizeof(uintptr_t) == sizeof *words);
    auto *const addresses = reinterpret_cast<uintptr_t *>(words);
    const size_t all =
        observe::walk(observe::frame_here(), addresses, most_inside + observe::deepest_stack);
    size_t first = 0;
    while (first < all && addresses[first] != reinterpret_cast<uintptr_t>(caller)) {
        first++;
    }
    first = first == all ? 0 : first; // the caller is not on the stack: no frame is left out
    const size_t natives = std::min(all - first, observe::deepest_stack);
    uint64_t *const pythons = words + first + natives;
    const size_t python_count = observe::python_frames(
        pythons, std::min(observe::deepest_python, size_t(std::end(words) - pythons)));
    return observe::known_stack({words + first, natives, python_count});
}

// Only the line of Python and the tags; NULL if there are neither.
const observe::Stack *line_here() noexcept {
    uint64_t word = 0;
    const size_t count = observe::python_line(word);
    return count != 0 ? observe::known_stack({&word, 0, count}) : observe::stack_of_tags();
}

const observe::Stack *stack_here(TrackDepth depth, const void *caller) noexcept {
    return depth == TrackDepth::stack ? stack_behind(caller) : line_here();
}

// The record that a visitor gets. Its texts live as long as the process.
emm_allocation described(const TrackedAllocation &record, uint64_t now) {
    const Tracker &all = tracker();
    auto allocation = observe::sized<emm_allocation>();
    allocation.memory = memory_of(static_cast<observe::EventType>(record.type));
    allocation.ptr = record.address;
    allocation.size = record.size;
    allocation.stream = record.stream;
    allocation.age_ns =
        now < record.ticks ? 0 : uint64_t(double(now - record.ticks) * all.ns_per_tick);
    allocation.thread = record.thread;
    allocation.sample = all.options.sample;
    const std::string &path = observe::modules().path(record.module);
    allocation.module = path.empty() ? nullptr : path.c_str();
    allocation.offset = record.offset;
    allocation.frame_size = sizeof(emm_frame);
    if (record.stack) {
        allocation.frame_count = static_cast<uint32_t>(record.stack->frames.size());
        allocation.frames = record.stack->frames.data();
        allocation.tag = record.stack->tag ? record.stack->tag->path.c_str() : nullptr;
    }
    return allocation;
}

} // namespace

observe::TrackOptions open_tracking() noexcept {
    static Tracker *const made = make_tracker();
    if (!made) {
        return {};
    }
    the_tracker.store(made, std::memory_order_relaxed);
    track_depth.store(made->options.depth, std::memory_order_release);
    return made->options;
}

const observe::Stack *track(emm_context &context, observe::EventType type, emm_deviceptr address,
                            size_t size, emm_stream stream, const void *caller) noexcept {
    Tracker &all = tracker();
    if (observe::is_forked_child()) [[unlikely]] { // forked in the plugin's function
        return nullptr;
    }
    if (of_thread.number == 0) [[unlikely]] {
        begin_thread();
    }
    if (all.options.sample != 1 && !is_chosen(all.options.sample)) {
        return nullptr;
    }
    const uint64_t ticks = observe::event_ticks_unordered();
    look_for_unloads(all, ticks);
    const observe::OuterCaller outer = observe::find_outer_caller(caller);
    const observe::Stack *const stack = stack_here(all.options.depth, outer.address);
    try {
        all.table.insert(address, [&](TrackedAllocation &record) {
            record.size = size;
            record.context = &context;
            record.stream = stream;
            record.ticks = ticks;
            record.offset = outer.place.offset;
            record.stack = stack;
            record.module = outer.place.module;
            record.thread = of_thread.number & 0xffffff;
            record.type = static_cast<uint8_t>(type);
        });
    } catch (const std::bad_alloc &) {
        all.lost.fetch_add(1, std::memory_order_relaxed);
    }
    return stack;
}

const observe::Stack *stack_of(const void *caller) noexcept {
    const TrackDepth depth = track_depth.load(std::memory_order_acquire);
    return depth == TrackDepth::none
               ? nullptr
               : stack_here(depth, observe::find_outer_caller(caller).address);
}

Untracked::Untracked(const emm_context &context, emm_deviceptr address) noexcept
    : record_(is_tracking() ? tracker().table.take(address, &context) : TrackedAllocation()) {}

emm_status Untracked::freed(emm_status status) noexcept {
    if (status >= EMM_OK || record_.address == 0 || observe::is_forked_child()) {
        return status;
    }
    try {
        tracker().table.insert(record_);
    } catch (const std::bad_alloc &) {
        tracker().lost.fetch_add(1, std::memory_order_relaxed);
    }
    return status;
}

void forget_tracked(const emm_context &context) noexcept {
    if (is_tracking()) {
        tracker().table.forget(&context);
    }
}

std::vector<TrackedAllocation> tracked_allocations(const emm_context *context) {
    return is_tracking() ? tracker().table.all(context) : std::vector<TrackedAllocation>();
}

emm_status track_driver_memory(int32_t device, uint64_t size, const void *caller,
                               uint64_t &ret_id) {
    ret_id = 0;
    if (open_tracking().depth == TrackDepth::none) { // no context may be served yet
        return observe::fail(EMM_E_NOT_SUPPORTED, 0, "{}", not_tracked);
    }
    Tracker &all = tracker();
    look_for_unloads(all, observe::event_ticks());
    const observe::CodePlace place = observe::find_outer_caller(caller).place;
    const std::lock_guard lock(all.driver_memory_mutex);
    all.driver_memory[all.last_id + 1] = {all.last_id + 1, size, device, place.module};
    ret_id = ++all.last_id;
    return EMM_OK;
}

emm_status untrack_driver_memory(uint64_t id) noexcept {
    if (id == 0) {
        return EMM_OK;
    }
    if (is_tracking()) {
        const std::lock_guard lock(tracker().driver_memory_mutex);
        if (tracker().driver_memory.erase(id) != 0) {
            return EMM_OK;
        }
    }
    return observe::fail(EMM_E_NOT_OWNED, 0, "emm_untrack_driver_memory: unknown id {}", id);
}

std::vector<DriverMemory> tracked_driver_memory(int32_t device) {
    std::vector<DriverMemory> found;
    if (is_tracking()) {
        const std::lock_guard lock(tracker().driver_memory_mutex);
        for (const auto &[id, memory] : tracker().driver_memory) {
            if (memory.device == device) {
                found.push_back(memory);
            }
        }
    }
    return found;
}

uint64_t lost_records() noexcept {
    return is_tracking() ? tracker().lost.load(std::memory_order_relaxed) : 0;
}

emm_status foreach_allocation(const emm_context &context, emm_allocation_visitor visit,
                              void *user_data) {
    if (!is_tracking()) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0, "{}", not_tracked);
    }
    const uint64_t now = observe::event_ticks();
    for (const TrackedAllocation &record : tracked_allocations(&context)) {
        const emm_allocation allocation = described(record, now);
        if (visit(&allocation, user_data) != 0) {
            break;
        }
    }
    return EMM_OK;
}

} // namespace emm::core
