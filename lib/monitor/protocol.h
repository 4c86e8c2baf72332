// The protocol between `emm top` and a process that it asks.
//
// The process listens at an abstract Unix socket (SOCK_SEQPACKET) called "emm-top-PID-RANDOM": the
// process id as the process itself sees it, and 16 hexadecimal digits, which keep others from
// taking the name before. A connection carries one Request. The answer is one message: an
// AnswerHeader, then a JSON object. Both sides ask the kernel whether the other is of their user
// (sockets/user.h).
//
// Keys may be added to the object without a new version; a reader ignores unknown keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <string_view>

namespace emm::monitor {

inline constexpr std::string_view name_prefix = "emm-top-";
inline constexpr size_t random_digits = 16;

// Needs no memory.
class SocketName {
public:
    SocketName(uint64_t pid, uint64_t random) noexcept
        : size_(fmt::format_to_n(text_, sizeof text_, "{}{}-{:0{}x}", name_prefix, pid, random,
                                 random_digits)
                    .size) {}
    operator std::string_view() const noexcept { return {text_, size_}; }

private:
    char text_[64]; // a prefix, 20 digits, 16 digits
    size_t size_;
};

inline constexpr uint32_t protocol_magic = 0x746d6d65; // "emmt"
inline constexpr uint32_t protocol_version = 1;

inline constexpr size_t longest_answer = 96 * 1024; // bytes, with the header: one message holds it
inline constexpr size_t most_contexts = 64;         // further contexts are counted

enum class RequestKind : uint32_t {
    figures = 1, // of each context
    report = 2,  // written to the log's destination, and in the answer
    trim = 3,    // unused memory goes back to the driver; then as figures
    limit = 4,   // the request ends with a text like EMM_LIMIT's: the new bound
    // The request ends with key=value, a zero byte and a pool's name: the pool's new option.
    set = 5,
    // The request ends with "keep" or "discard", a space, the milliseconds to wait for work on the
    // device, a zero byte and the name of the pool to pause ("": all pools).
    pause = 6,
    // The request ends with "keep" or nothing (whether the copy's host memory stays for the next
    // pause), a zero byte and a pool's name: its memory comes back.
    resume = 7,
    profile = 8, // live memory, by caller
};

// How long a process waits for its plugin before it answers, in nanoseconds. A new option may give
// back much memory. A pause and a resume are answered when they are done, however much is copied.
constexpr int64_t plugin_timeout(RequestKind kind) {
    return kind == RequestKind::pause || kind == RequestKind::resume ? INT64_C(3'600'000'000'000)
           : kind == RequestKind::profile ? 10'000'000'000 // symbols are read
           : kind == RequestKind::set     ? 800'000'000
                                          : 300'000'000;
}

struct Request {
    uint32_t magic;
    uint32_t version;
    uint32_t kind;
    uint32_t reserved; // 0
};

inline constexpr size_t longest_rest = 4096; // bytes behind a request; earlier versions take 200

// To `limit` the object has `limit_problem`, "" if the bound has changed, and `limit_above`, a
// sentence if more than that is in use. To `set` it has `set_problem`, "" if the option has
// changed, `set_pools`, in how many it has, and `set_above`, a sentence if more is live than the
// new value allows. To `pause` and `resume` it has `pause_problem`, "" if all is done, `pause_ns`,
// how long that took, `pause_bytes` of all pools, and `pause_pools`, with the bytes of each and, if
// some stay, why; those come first, and `pause_pools_left_out` counts what does not fit. To
// `profile` it has `profile`: `is_tracked`, `sample` and `lost` as in core/reports/live_profile.h,
// `frames` ([file, function, line]), `callers` ([device, memory, bytes, count, numbers of frames])
// as far as they fit, the largest first, and what is left out: `others` ([bytes, count]). All
// others have `held`: whether the program's calls are held from outside.
struct AnswerHeader {
    uint32_t magic;
    uint32_t version;
    uint32_t size; // of the JSON text behind it
    uint32_t reserved;
};

} // namespace emm::monitor
