#include "observe/callers/tags.h"

#include "observe/log.h"
#include "observe/process.h"
#include "observe/text.h"

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace emm::observe {
namespace {

class AllTags {
public:
    // NULL: beyond the bounds.
    const Tag *find_or_make(const Tag *outer, std::string_view key) {
        std::unique_lock lock(mutex_);
        const auto found = tags_.find({outer, key});
        if (found != tags_.end()) {
            return found->second;
        }
        if ((outer && outer->depth == deepest_tags) || tags_.size() == most_tags) {
            const bool is_first = !std::exchange(has_warned_, true);
            lock.unlock();
            is_first ? warn() : void();
            return nullptr;
        }
        auto made = std::make_unique<const Tag>(outer, key);
        tags_[{outer, made->key}] = made.get();
        return made.release();
    }

private:
    static void warn() {
        log(EMM_LOG_WARN,
            "emm_tag_begin: a tag has no name, because more than {} are nested or the process has "
            "{} already",
            deepest_tags, most_tags);
    }

    std::mutex mutex_;
    std::map<std::pair<const Tag *, std::string_view>, const Tag *> tags_; // by outer and key
    bool has_warned_ = false;
};

constexpr auto &all_tags = immortal<AllTags>;

const Tag *find_tag(const Tag *outer, std::string_view key) noexcept {
    try {
        return all_tags().find_or_make(outer, key);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

} // namespace

Tag::Tag(const Tag *its_outer, std::string_view its_key)
    : outer(its_outer), key(its_key), depth(its_outer ? its_outer->depth + 1 : 1),
      path((its_outer ? its_outer->path + "/" : "") + one_line(its_key, longest_tag)) {}

void begin_tag(const char *name) noexcept {
    ThreadTags &mine = thread_tags;
    const std::string_view key(name, strnlen(name, longest_tag_read));
    const Tag *const tag = mine.unnamed == 0 ? find_tag(mine.innermost, key) : nullptr;
    if (!tag) {
        mine.unnamed++;
        return;
    }
    (mine.innermost ? mine.innermost->latest : latest_outermost)
        .store(tag, std::memory_order_release);
    mine.innermost = tag;
}

bool end_tag() noexcept {
    ThreadTags &mine = thread_tags;
    if (mine.unnamed != 0) {
        mine.unnamed--;
        return true;
    }
    if (!mine.innermost) {
        return false;
    }
    mine.innermost = mine.innermost->outer;
    return true;
}

} // namespace emm::observe
