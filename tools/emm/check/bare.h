#pragma once

#include "check/case.h"
#include "check/report.h"

#include <emm/plugin.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace emm::tool::check {

// The suite as a host: the plugin's last host->fail, and its deferred calls.
struct Said {
    emm_status code = EMM_OK;
    std::string text;
};
const Said &last_said(); // by the calling thread
void forget_said();
// `slot` has failed: its code must be known, and said before.
void expect_described(const std::string &slot, emm_status status);

enum class Defer { queue, at_once, refuse };
void set_defer(Defer how);
size_t run_deferred(uint32_t what); // EMM_DEFERRED_*; returns their number

// The host's services as version 1.0 has them.
const emm_host &kit_host();

// A plugin's library, opened in this process, and its table: called directly, without libemm. The
// process has one.
class Bare {
public:
    explicit Bare(const CheckedPlugin &plugin, const emm_host *host = &kit_host());

    // The table of the library itself; then those of the layers over it.
    const std::vector<const emm_plugin *> &tables() const { return tables_; }
    // The plugin's, or those of the stack. Slots behind the table's end are NULL.
    const emm_plugin &slots() const { return slots_; }
    const char *const *option_texts() const { return texts_.data(); }

private:
    std::vector<const emm_plugin *> tables_;
    emm_plugin slots_ = {};
    std::vector<const char *> texts_;
};

// The same, with a context of the device current.
Bare on_device(const CheckedPlugin &plugin);

// Skips plugins that claim EMM_PLUGIN_OPAQUE: nothing is known of their caches.
inline void expect_tells(const Bare &bare) {
    if (bare.slots().capabilities & EMM_PLUGIN_OPAQUE) {
        throw Skipped("it claims EMM_PLUGIN_OPAQUE: what it keeps is not known");
    }
}

// Skips the case, for this reason, where the plugin leaves a slot out.
template <class Slot> void need(Slot slot, const char *why) {
    if (!slot) {
        throw Skipped(why);
    }
}

// The entry function, not yet called, of a plugin or of a layer.
emm_plugin_entry open_entry(const std::string &path, const char *symbol = EMM_PLUGIN_ENTRY_SYMBOL);

// Calls a slot. An exception from it is a violation.
template <class... Parameters, class... Arguments>
emm_status call(const char *name, emm_status (*slot)(Parameters...), Arguments... arguments) {
    const InSlot inside(name);
    try {
        return slot(arguments...);
    } catch (const std::exception &error) {
        throw Violation(fmt::format("a C++ exception left {}: {}", name, error.what()));
    } catch (...) {
        throw Violation(fmt::format("a C++ exception left {}", name));
    }
}

// One manager, for the current context; destroyed at the latest with this object.
class BareManager {
public:
    explicit BareManager(const Bare &bare, bool initialize = true, const char *pool = "");
    ~BareManager();
    BareManager(const BareManager &) = delete;
    BareManager &operator=(const BareManager &) = delete;

    // Slots by name, with this manager: EMM_SLOT(manager, memalloc, 256, stream, &ptr).
    template <class Slot, class... Arguments>
    emm_status operator()(const char *name, Slot slot, Arguments... arguments) const {
        return call(name, slot, self_, arguments...);
    }
    // The same for a call that must succeed.
    template <class Slot, class... Arguments>
    void must(const char *name, Slot slot, Arguments... arguments) const {
        const emm_status status = call(name, slot, self_, arguments...);
        expect(status >= EMM_OK, "{} fails: {} {}", name, status, last_said().text);
    }
    const emm_plugin &slots() const { return bare_.slots(); }
    emm_manager *self() const { return self_; }

    // Checks a status that must be a success.
    emm_deviceptr alloc(size_t size, emm_stream stream = EMM_STREAM_UNORDERED) const;
    void free(emm_deviceptr ptr, size_t size, emm_stream stream = EMM_STREAM_UNORDERED) const;
    emm_stats stats() const; // zeros if the plugin has no statistics
    void destroy();

private:
    const Bare &bare_;
    emm_manager *self_ = nullptr;
};

#define EMM_SLOT(manager, slot, ...)                                                               \
    (manager)(#slot, (manager).slots().slot __VA_OPT__(, ) __VA_ARGS__)
#define EMM_MUST(manager, slot, ...)                                                               \
    (manager).must(#slot, (manager).slots().slot __VA_OPT__(, ) __VA_ARGS__)

// Describes the current context, as create gets it for one of its pools.
emm_context_info describe_current(const char *pool = "");

// Tries create; its manager is the caller's. Without texts: with the plugin's own.
emm_status try_create(const Bare &bare, emm_manager **ret_manager,
                      const char *const *option_texts = nullptr, const char *pool = "");

// Called before each driver call of the plugin that returns device memory; NULL: not called.
extern std::atomic<void (*)()> before_giving_back;

// A struct that ends where inaccessible memory begins.
template <class Struct> class Tail {
public:
    explicit Tail(const Struct &value, size_t bytes = sizeof(Struct)) {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void *got =
            mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(got != MAP_FAILED, "the suite has no memory");
        char *pages = static_cast<char *>(got);
        mprotect(pages + page, page, PROT_NONE);
        at_ = pages + page - bytes;
        std::memcpy(at_, &value, std::min(bytes, sizeof value));
    }
    Struct *get() const { return reinterpret_cast<Struct *>(at_); }

private:
    char *at_; // never unmapped: a plugin may keep the address
};

} // namespace emm::tool::check
