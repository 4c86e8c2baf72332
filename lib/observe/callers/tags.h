#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// The names that a program gives to its threads' activities (emm_tag_begin), nested, for each
// thread. Beginning and ending a tag costs a comparison and a store, so tags are kept even if
// nothing is recorded.
namespace emm::observe {

inline constexpr size_t longest_tag = 64;       // bytes of a tag as shown
inline constexpr size_t longest_tag_read = 256; // bytes of a tag as given
inline constexpr uint32_t deepest_tags = 16;    // of one thread
// The most tags of the process; the same name inside other tags counts again.
inline constexpr size_t most_tags = 65'536;

// A name inside other tags. Made once, and never destroyed.
struct Tag {
    Tag(const Tag *its_outer, std::string_view its_key);

    const Tag *const outer; // NULL: the outermost tag
    const std::string key;  // as given by the program
    const uint32_t depth;   // 1 for the outermost tag
    const std::string path; // its outer tags, the outermost first, then itself: "serve/decode"
    mutable std::atomic<const Tag *> latest{nullptr}; // the tag begun last inside this one
};

// Trivial, because ending threads use it; initial-exec, because a look at it must not be a function
// call.
struct ThreadTags {
    const Tag *innermost = nullptr;
    uint64_t unnamed = 0; // tags inside `innermost` that are beyond the bounds
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local ThreadTags thread_tags;
inline constinit std::atomic<const Tag *> latest_outermost{nullptr};

// NULL: no tag has begun.
inline const Tag *current_tag() noexcept {
    return thread_tags.innermost;
}

// If `name` is the tag that was begun last inside the same tags, begins it. False: the name is
// another one.
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

// Any thread. Tags beyond the bounds above, or beyond memory, have no name.
void begin_tag(const char *name) noexcept;
bool end_tag() noexcept; // false: no tag has begun

} // namespace emm::observe
