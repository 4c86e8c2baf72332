#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// The names that a program gives to what its threads do (emm_tag_begin): nested, of each thread.
// To begin and to end one is a comparison and a store, so it goes on where nothing is recorded.
namespace emm::observe {

inline constexpr size_t longest_tag = 64;       // bytes, as it is shown
inline constexpr size_t longest_tag_read = 256; // of what the program gives
inline constexpr uint32_t deepest_tags = 16;    // of one thread
inline constexpr size_t most_tags = 65'536;     // of the process, each with those around it

// A name inside of others. Made once, and never destroyed.
struct Tag {
    Tag(const Tag *its_outer, std::string_view its_key);

    const Tag *const outer; // NULL: it is the outermost
    const std::string key;  // as the program gave it
    const uint32_t depth;   // of the outermost 1
    const std::string path; // those around it, the outermost first, and it: "serve/decode"
    mutable std::atomic<const Tag *> latest{nullptr}; // of those inside of it, that was begun last
};

// Trivial, as it is used by threads that are ending; initial-exec, because a look at it must not be
// a function call.
struct ThreadTags {
    const Tag *innermost = nullptr;
    uint64_t unnamed = 0; // that are inside of it, beyond what is kept
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local ThreadTags thread_tags;
inline constinit std::atomic<const Tag *> latest_outermost{nullptr};

// NULL: none has begun.
inline const Tag *current_tag() noexcept {
    return thread_tags.innermost;
}

// Begins the tag that was begun last inside of the same ones; false: it has another name.
inline bool begin_latest_tag(const char *name) noexcept {
    const ThreadTags mine = thread_tags;
    const Tag *const latest = (mine.innermost ? mine.innermost->latest : latest_outermost)
                                  .load(std::memory_order_acquire);
    const bool is_it = mine.unnamed == 0 && latest &&
                       std::strncmp(name, latest->key.c_str(), longest_tag_read) == 0;
    if (is_it) {
        thread_tags.innermost = latest;
    }
    return is_it;
}

// Any. What is beyond the bounds above, or beyond memory, has no name.
void begin_tag(const char *name) noexcept;
bool end_tag() noexcept; // false: none has begun

} // namespace emm::observe
