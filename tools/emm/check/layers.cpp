// The rules for a layer by itself, over slots of the suite's own, which see how the layer calls
// them.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/plan.h"
#include "check/stack.h"
#include "driver.h"
#include "loader/plugin.h"

#include <mutex>
#include <set>
#include <utility>

namespace emm::tool::check {
namespace {

using loader::Slot;

constexpr size_t odd_size = 4711;
constexpr const char *nothing_left = "nothing is left below";

// The stand-in below the layer under test.
struct Below {
    emm_plugin table = {};
    std::array<char, std::tuple_size_v<loader::Slots>> tokens = {}; // their addresses are managers
    std::array<emm_manager *, std::tuple_size_v<loader::Slots>> selves = {};
    std::mutex mutex; // around the rest
    std::set<emm_deviceptr> live;
    bool refuses = false, ended = false;
    size_t requests = 0;
    std::string another_manager, not_live, after_end; // the first complaint of each kind
};
Below &below() {
    static Below the_below;
    return the_below;
}

emm_status give(emm_manager *, size_t size, emm_stream, emm_deviceptr *ret_ptr) {
    const std::lock_guard lock(below().mutex);
    ++below().requests;
    if (below().refuses) {
        return kit_host().fail(EMM_E_OUT_OF_MEMORY, 0, nothing_left);
    }
    emm_deviceptr ptr = 0;
    EMM_REQUIRE_CUDA_ENTRY(cuMemAlloc, &ptr, size);
    below().live.insert(ptr);
    *ret_ptr = ptr;
    return EMM_OK;
}

void complain(std::string &of_this_kind, std::string what) {
    const std::lock_guard lock(below().mutex);
    of_this_kind = of_this_kind.empty() ? std::move(what) : of_this_kind;
}

void expect_none(const std::string &of_this_kind) {
    const std::lock_guard lock(below().mutex);
    expect(of_this_kind.empty(), "{}", of_this_kind);
}

// The memory goes back when the process ends, because it may be in use.
emm_status take(emm_manager *, emm_deviceptr ptr, size_t, emm_stream) {
    const bool was_live = [&] {
        const std::lock_guard lock(below().mutex);
        return below().live.erase(ptr) != 0;
    }();
    if (!was_live) {
        complain(below().not_live, "it freed below what is not live there, or not any more");
        return kit_host().fail(EMM_E_NOT_OWNED, 0, "not live below");
    }
    return EMM_OK;
}

template <auto slot, Slot which> struct Under;
template <class... Arguments, emm_status (*emm_plugin::*slot)(emm_manager *, Arguments...),
          Slot which>
struct Under<slot, which> {
    static emm_status call(emm_manager *self, Arguments... arguments) {
        constexpr auto index = static_cast<unsigned>(which);
        const char *const name = loader::slot_names[index];
        if (below().ended) {
            complain(below().after_end, fmt::format("it called {} below after its destroy", name));
        } else if (self != below().selves[index]) {
            complain(below().another_manager,
                     fmt::format("it called {} below with another slot's manager", name));
        }
        return (below().table.*slot)(self, arguments...);
    }
};

template <auto slot, Slot which> auto under(const emm_plugin &slots) {
    std::decay_t<decltype(slots.*slot)> function = nullptr;
    if constexpr (!loader::is_called_for_each_member(which)) {
        function = &Under<slot, which>::call;
    }
    return function;
}

const emm_plugin &watched_slots() {
    static const emm_plugin table = [] {
        emm_plugin made = {};
        made.struct_size = sizeof made;
        made.interface_version = EMM_PLUGIN_ABI_MAJOR;
        made.interface_minor = EMM_PLUGIN_ABI_MINOR;
#define EMM_CHECK_UNDER(slot) made.slot = under<&emm_plugin::slot, Slot::slot>(made);
        EMM_LOADER_EACH_SLOT(EMM_CHECK_UNDER)
#undef EMM_CHECK_UNDER
        return made;
    }();
    return table;
}

// A manager of one layer, over the suite's slots.
class Alone {
public:
    explicit Alone(const CheckedFile &layer)
        : slots_(known_part_of(*open_entry(layer.path, EMM_LAYER_ENTRY_SYMBOL)(&kit_host()))) {
        std::vector<const char *> texts;
        for (const auto &text : layer.option_texts) {
            texts.push_back(text ? text->c_str() : nullptr);
        }
        texts.push_back(nullptr);
        emm_context_info info = describe_current();
        info.below = &watched_slots();
        info.below_managers = below().selves.data();
        const emm_status made =
            call("create", slots_.create, &kit_host(), &info, texts.data(), &self_);
        expect(made >= EMM_OK && self_, "create failed: {}, {}", made, last_said().text);
        if (slots_.initialize) {
            call("initialize", slots_.initialize, self_);
        }
    }
    const emm_plugin &slots() const { return slots_; }
    emm_manager *self() const { return self_; }

    emm_deviceptr alloc(size_t size) const {
        emm_deviceptr ptr = 0;
        const emm_status got =
            call("memalloc", slots_.memalloc, self_, size, EMM_STREAM_LEGACY, &ptr);
        expect(got >= EMM_OK && ptr, "memalloc failed: {}, {}", got, last_said().text);
        return ptr;
    }
    void free(emm_deviceptr ptr, size_t size) const {
        const emm_status freed =
            call("memfree", slots_.memfree, self_, ptr, size, EMM_STREAM_LEGACY);
        expect(freed >= EMM_OK, "memfree failed: {}, {}", freed, last_said().text);
    }
    void destroy() const {
        call("destroy", slots_.destroy, self_);
        below().ended = true;
    }

private:
    emm_plugin slots_;
    emm_manager *self_ = nullptr;
};

void prepare_below() {
    enter_device();
    below().table = slots_of_the_suite();
    below().table.memalloc = give;
    below().table.memfree = take;
    for (size_t i = 0; i < below().selves.size(); i++) {
        below().selves[i] = reinterpret_cast<emm_manager *>(&below().tokens[i]);
    }
}

// The outermost layer. Each layer can be checked in that place.
const CheckedFile &layer_of(const CheckedPlugin &plugin) {
    if (plugin.layers.empty()) {
        throw Skipped("it has no layer");
    }
    prepare_below();
    return plugin.layers.back();
}

Alone allocating(const CheckedPlugin &plugin) {
    const Alone layer(layer_of(plugin));
    need(layer.slots().memalloc, "the layer leaves memalloc to what is below");
    return layer;
}

// The arguments make little sense: only the layer's calls below count.
void managers(const CheckedPlugin &plugin) {
    const Alone layer(layer_of(plugin));
    const emm_plugin &slots = layer.slots();
    emm_manager *const self = layer.self();
    const auto try_slot = [&](const char *name, auto slot, auto... arguments) {
        if (slot) {
            call(name, slot, self, arguments...);
        }
    };
    emm_deviceptr ptr = 0, mapped = 0;
    void *host = nullptr;
    size_t one = 0, two = 0;
    auto stats = sized<emm_stats>();
    auto block = sized<emm_block_info>();
    emm_ipc_handle handle = {};
    try_slot("memalloc", slots.memalloc, odd_size, EMM_STREAM_LEGACY, &ptr);
    try_slot("query", slots.query, ptr, &block);
    try_slot("record_use", slots.record_use, ptr, odd_size, EMM_STREAM_LEGACY);
    try_slot("get_ipc_handle", slots.get_ipc_handle, ptr, odd_size, &handle);
    try_slot("release_ipc_handle", slots.release_ipc_handle, &handle);
    try_slot("memfree", slots.memfree, ptr, odd_size, EMM_STREAM_LEGACY);
    try_slot("memhostalloc", slots.memhostalloc, odd_size, 0u, &host, &mapped);
    try_slot("memhostfree", slots.memhostfree, static_cast<void *>(&one), odd_size, 0u,
             EMM_STREAM_LEGACY);
    try_slot("mempin", slots.mempin, static_cast<void *>(&one), sizeof one, 0u, &mapped);
    try_slot("memunpin", slots.memunpin, static_cast<void *>(&one), sizeof one);
    try_slot("memallocmanaged", slots.memallocmanaged, odd_size, EMM_ATTACH_GLOBAL, &mapped);
    try_slot("memfreemanaged", slots.memfreemanaged, mapped, odd_size, EMM_STREAM_LEGACY);
    try_slot("get_memory_info", slots.get_memory_info, &one, &two);
    try_slot("defer_cleanup", slots.defer_cleanup, 1u);
    try_slot("defer_cleanup", slots.defer_cleanup, 0u);
    try_slot("trim", slots.trim, size_t(0), &one);
    try_slot("set_access", slots.set_access, 0, EMM_ACCESS_READ_WRITE);
    try_slot("get_stats", slots.get_stats, &stats);
    try_slot("reset_peaks", slots.reset_peaks);
    layer.destroy();
    expect_none(below().another_manager);
}

void failures(const CheckedPlugin &plugin) {
    const Alone layer = allocating(plugin);
    below().refuses = true;
    const emm_deviceptr untouched = 77;
    emm_deviceptr ptr = untouched;
    forget_said();
    const emm_status got =
        call("memalloc", layer.slots().memalloc, layer.self(), odd_size, EMM_STREAM_LEGACY, &ptr);
    const std::string said = last_said().text;
    layer.destroy();
    if (below().requests == 0) {
        throw Skipped("the layer asks for no memory below");
    }
    expect(got == EMM_E_OUT_OF_MEMORY, "memalloc returned {} where that below had returned {}", got,
           EMM_E_OUT_OF_MEMORY);
    expect(ptr == untouched, "it wrote an output though that below had failed");
    expect(said == nothing_left,
           "it says '{}' where that below had said '{}': the description is to stay", said,
           nothing_left);
}

void after_reset(const CheckedPlugin &plugin) {
    const Alone layer = allocating(plugin);
    for (const size_t size : {odd_size, odd_size, mib}) {
        layer.alloc(size);
    }
    if (layer.slots().reset) {
        const emm_status done = call("reset", layer.slots().reset, layer.self());
        expect(done >= EMM_OK, "reset fails: {} {}", done, last_said().text);
    }
    {
        const std::lock_guard lock(below().mutex);
        below().live.clear();
    }
    layer.free(layer.alloc(odd_size), odd_size);
    layer.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    expect_none(below().not_live);
}

void ended(const CheckedPlugin &plugin) {
    const Alone layer = allocating(plugin);
    layer.free(layer.alloc(mib), mib);
    layer.alloc(mib);
    layer.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    expect_none(below().after_end);
}

void returned(const CheckedPlugin &plugin) {
    const Alone layer = allocating(plugin);
    for (int i = 0; i < 20; i++) {
        layer.free(layer.alloc(odd_size), odd_size);
    }
    run_deferred(EMM_DEFERRED_RUN);
    layer.destroy();
    const std::lock_guard lock(below().mutex);
    expect(below().live.empty(), "{} of 20 blocks that were freed are not freed below by its end",
           below().live.size());
}

} // namespace

std::vector<Case> layer_cases() {
    return {
        {"layers/managers", "EMM-L-01", "each slot below is called with its own manager", managers},
        {"layers/failures", "EMM-L-02", "a failure from below stays as it is", failures},
        {"layers/reset", "EMM-L-03", "memory that a reset has dropped is not freed below",
         after_reset},
        {"layers/ended", "EMM-L-04", "nothing is called below after destroy", ended},
        {"layers/returned", "EMM-L-05", "all that was freed is freed below when the layer ends",
         returned},
    };
}

} // namespace emm::tool::check
