#include "check/stack.h"

#include "check/bare.h"
#include "loader/plugin.h"
#include "observe/error.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace emm::tool::check {
namespace {

using loader::Slot;
using loader::Slots;
using Selves = std::array<emm_manager *, std::tuple_size_v<Slots>>;

Slots slots_of(const emm_plugin &table) {
    Slots slots;
    std::memcpy(slots.data(), &table.create, sizeof slots);
    return slots;
}

void set_slots(emm_plugin &table, const Slots &slots) {
    std::memcpy(static_cast<void *>(&table.create), slots.data(), sizeof slots);
}

struct Stack {
    std::vector<Member> members;
    std::vector<emm_plugin> tables; // of the members, as far as they go
    std::vector<emm_plugin> below;  // of member i + 1
    emm_plugin slots = {};          // the outermost's, each
};
Stack *the_stack = nullptr;

// The managers that create makes.
struct Managers {
    std::vector<emm_manager *> made;
    std::vector<Selves> below;
    Selves selves = {};

    ~Managers() {
        while (!made.empty()) {
            end();
        }
    }
    emm_status end() {
        const emm_status status = the_stack->tables[made.size() - 1].destroy(made.back());
        made.pop_back();
        return status;
    }
};

Managers &managers(emm_manager *self) {
    return *reinterpret_cast<Managers *>(self);
}

template <auto slot> struct Through;
template <class... Arguments, emm_status (*emm_plugin::*slot)(emm_manager *, Arguments...)>
struct Through<slot> {
    static emm_status call(emm_manager *self, Arguments... arguments) {
        const size_t offset = reinterpret_cast<const char *>(&(the_stack->slots.*slot)) -
                              reinterpret_cast<const char *>(&the_stack->slots.create);
        return (the_stack->slots.*slot)(managers(self).selves[offset / sizeof(emm_function)],
                                        arguments...);
    }
};

template <auto slot, Slot which> auto through_slot(const emm_plugin &slots) {
    std::decay_t<decltype(slots.*slot)> function = slots.*slot;
    if constexpr (!loader::is_called_for_each_member(which)) {
        function = function ? &Through<slot>::call : nullptr;
    }
    return function;
}

// A layer knows minor 2, whatever host the plugin is to find.
emm_context_info info_for_layer(const emm_context_info &info, const emm_plugin &below,
                                const Selves &selves) {
    emm_context_info full = {};
    std::memcpy(&full, &info, std::min<size_t>(info.struct_size, sizeof full));
    full.struct_size = sizeof full;
    full.pool = full.pool ? full.pool : "";
    full.below = &below;
    full.below_managers = selves.data();
    return full;
}

// The members below are initialized before the layer is created.
emm_status make_layer(const emm_host *host, const emm_context_info &info, Managers &ret,
                      size_t position) {
    const emm_plugin &under = the_stack->tables[position - 1];
    if (under.initialize) {
        EMM_TRY(under.initialize(ret.made.back()));
    }
    ret.below.push_back(ret.selves);
    const emm_context_info full =
        info_for_layer(info, the_stack->below[position - 1], ret.below.back());
    emm_manager *made = nullptr;
    EMM_TRY(the_stack->tables[position].create(
        host, &full, the_stack->members[position].option_texts.data(), &made));
    ret.made.push_back(made);
    return EMM_OK;
}

void add_selves(Managers &ret, size_t position) {
    const Slots filled = slots_of(the_stack->tables[position]);
    for (size_t i = 0; i < filled.size(); i++) {
        ret.selves[i] = filled[i] ? ret.made.back() : ret.selves[i];
    }
}

emm_status create_all(const emm_host *host, const emm_context_info *info,
                      const char *const *option_texts, emm_manager **ret_manager) {
    auto made = std::make_unique<Managers>();
    made->below.reserve(the_stack->below.size());
    emm_manager *plugin = nullptr;
    EMM_TRY(the_stack->tables.front().create(host, info, option_texts, &plugin));
    made->made.push_back(plugin);
    add_selves(*made, 0);
    for (size_t i = 1; i < the_stack->tables.size(); i++) {
        EMM_TRY(make_layer(host, *info, *made, i));
        add_selves(*made, i);
    }
    *ret_manager = reinterpret_cast<emm_manager *>(made.release());
    return EMM_OK;
}

emm_status destroy_all(emm_manager *self) {
    const std::unique_ptr<Managers> ended(&managers(self));
    emm_status status = EMM_OK;
    while (!ended->made.empty()) {
        status = std::min(status, ended->end());
    }
    return status;
}

template <emm_status (*emm_plugin::*slot)(emm_manager *)>
emm_status call_each(emm_manager *self, bool downwards) {
    const size_t count = the_stack->tables.size();
    for (size_t i = 0; i < count; i++) {
        const size_t position = downwards ? count - 1 - i : i;
        const auto function = the_stack->tables[position].*slot;
        EMM_TRY(function ? function(managers(self).made[position]) : EMM_OK);
    }
    return EMM_OK;
}

template <class... Arguments> emm_status nothing_to_do(Arguments...) {
    return EMM_OK;
}
template <class... Arguments> emm_status not_supported(Arguments...) {
    return kit_host().fail(EMM_E_NOT_SUPPORTED, 0, "the suite has nothing here");
}

emm_plugin make_slots() {
    emm_plugin table = {};
#define EMM_CHECK_REFUSE(slot) table.slot = not_supported;
    EMM_LOADER_EACH_SLOT(EMM_CHECK_REFUSE)
#undef EMM_CHECK_REFUSE
    table.defer_cleanup = nothing_to_do;
    table.release_ipc_handle = nothing_to_do;
    table.stream_notice = nothing_to_do;
    table.trim = [](emm_manager *, size_t, size_t *ret_released) {
        *ret_released = 0;
        return emm_status(EMM_OK);
    };
    return table;
}

emm_plugin below_of(const emm_plugin &covered) {
    Slots slots = slots_of(covered);
    const Slots otherwise = slots_of(slots_of_the_suite());
    for (size_t i = 0; i < slots.size(); i++) {
        slots[i] = loader::is_called_for_each_member(static_cast<Slot>(i)) ? nullptr
                   : slots[i]                                              ? slots[i]
                                                                           : otherwise[i];
    }
    emm_plugin below = covered;
    set_slots(below, slots);
    return below;
}

void cover(emm_plugin &covered, const emm_plugin &layer) {
    Slots slots = slots_of(covered);
    const Slots filled = slots_of(layer);
    for (size_t i = 0; i < slots.size(); i++) {
        const bool is_taken = filled[i] && !loader::is_called_for_each_member(static_cast<Slot>(i));
        slots[i] = is_taken ? filled[i] : slots[i];
    }
    set_slots(covered, slots);
    covered.capabilities = loader::capabilities_over(covered.capabilities, layer.capabilities);
}

// A slot that no member has stays NULL.
emm_plugin through(const emm_plugin &slots) {
    emm_plugin table = slots;
#define EMM_CHECK_THROUGH(slot) table.slot = through_slot<&emm_plugin::slot, Slot::slot>(slots);
    EMM_LOADER_EACH_SLOT(EMM_CHECK_THROUGH)
#undef EMM_CHECK_THROUGH
    table.create = create_all;
    table.destroy = destroy_all;
    table.initialize = [](emm_manager *self) {
        return call_each<&emm_plugin::initialize>(self, false);
    };
    if (slots.reset) {
        table.reset = [](emm_manager *self) { return call_each<&emm_plugin::reset>(self, true); };
    }
    return table;
}

} // namespace

const emm_plugin &slots_of_the_suite() {
    static const emm_plugin table = make_slots();
    return table;
}

emm_plugin known_part_of(const emm_plugin &table) {
    emm_plugin slots = {};
    const size_t whole_slots = table.struct_size & ~(sizeof(emm_function) - 1);
    std::memcpy(&slots, &table, std::min<size_t>(whole_slots, sizeof slots));
    return slots;
}

const emm_plugin *table_of_stack(std::vector<Member> members) {
    static emm_plugin table;
    auto stack = std::make_unique<Stack>();
    stack->members = std::move(members);
    for (const Member &member : stack->members) {
        const bool is_layer = !stack->tables.empty();
        stack->tables.push_back(known_part_of(*member.table));
        if (is_layer) {
            stack->below.push_back(below_of(stack->slots));
            cover(stack->slots, stack->tables.back());
        } else {
            stack->slots = stack->tables.back();
        }
    }
    table = through(stack->slots);
    table.struct_size = sizeof table;
    the_stack = stack.release();
    return &table;
}

} // namespace emm::tool::check
