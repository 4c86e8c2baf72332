#include "loader/plugin.h"

#include "loader/mapped.h"
#include "loader/options.h"
#include "loader/refusal.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/running.h"
#include "observe/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace emm::loader {
namespace {

constexpr uint32_t first_minor_of_layers = 2;
constexpr Slot required[] = {Slot::create, Slot::destroy, Slot::memalloc, Slot::memfree};

std::span<const Slot> required_of(const Plugin &plugin) {
    return std::span(required).first(plugin.is_layer ? 2 : std::size(required));
}

uint32_t required_size(const Plugin &plugin) {
    const auto last = static_cast<uint32_t>(required_of(plugin).back());
    return offsetof(emm_plugin, create) + (last + 1) * sizeof(emm_function);
}

struct Pair {
    Slot take, give;
};
constexpr Pair pairs[] = {{Slot::memalloc, Slot::memfree},
                          {Slot::memhostalloc, Slot::memhostfree},
                          {Slot::mempin, Slot::memunpin},
                          {Slot::memallocmanaged, Slot::memfreemanaged},
                          {Slot::get_ipc_handle, Slot::release_ipc_handle},
                          {Slot::pause, Slot::resume}};

size_t index(Slot slot) {
    return static_cast<size_t>(slot);
}
const char *name(Slot slot) {
    return slot_names[index(slot)];
}

Slots slots_of(const emm_plugin &table) {
    Slots slots;
    std::memcpy(slots.data(), &table.create, sizeof slots);
    return slots;
}

emm_status entry_failed(const Plugin &plugin, emm_status code, std::string got, std::string hint,
                        int32_t driver_result = 0) {
    return refuse({.code = code,
                   .stage = "symbol",
                   .path = plugin.path,
                   .problem = std::string(plugin.is_layer ? EMM_LAYER_ENTRY_SYMBOL
                                                          : EMM_PLUGIN_ENTRY_SYMBOL) +
                              " failed",
                   .expected = "a table",
                   .got = std::move(got),
                   .hint = std::move(hint),
                   .driver_result = driver_result});
}

// The text that the plugin passed to host->fail is this thread's last error by now.
emm_status entry_returned_null(const Plugin &plugin, bool described) {
    if (!described) {
        return entry_failed(plugin, EMM_E_PLUGIN_FAILED, "NULL without a reason",
                            "the plugin should call host->fail before it returns NULL");
    }
    const emm_error &error = *observe::last_error();
    return entry_failed(plugin, error.code < 0 ? error.code : EMM_E_PLUGIN_FAILED,
                        "NULL, because: " + std::string(error.text), "", error.driver_result);
}

emm_status call_entry(emm_plugin_entry entry, const emm_host &host, Plugin &ret) {
    observe::log(EMM_LOG_DEBUG, "{} {}: calling its entry", loaded_kind(),
                 ret.path.empty() ? "that is linked in" : ret.path);
    const observe::RunningText text = observe::running_text("its entry", ret.path);
    const observe::Running running(text);
    observe::take_plugin_word(); // an older word
    try {
        ret.own = entry(&host);
    } catch (...) {
        return entry_failed(ret, EMM_E_PLUGIN_EXCEPTION,
                            fmt::format("a C++ exception: {}", observe::what_is_thrown()),
                            "a plugin's function must not throw");
    }
    return ret.own ? EMM_OK : entry_returned_null(ret, observe::take_plugin_word());
}

emm_status refuse_stray(const Plugin &plugin, const std::string &what, const void *address) {
    return refuse_table(plugin.path, what + " is outside the plugin's data",
                        "the plugin's static data", fmt::format("address {}", address),
                        "a plugin's table points only into its own file or into a library that it "
                        "links, and its texts end with a NUL");
}

// Called before anything in the table is read.
emm_status check_memory(const Mapped &memory, const Plugin &plugin) {
    constexpr size_t least = offsetof(emm_plugin, interface_minor);
    const emm_plugin *const own = plugin.own;
    const bool aligned = reinterpret_cast<uintptr_t>(own) % alignof(emm_plugin) == 0;
    if (!aligned || !memory.holds(own, least) ||
        !memory.holds(own, std::min<size_t>(own->struct_size, sizeof *own))) {
        return refuse_stray(plugin, "its table", own);
    }
    return EMM_OK;
}

emm_status check_texts(const Mapped &memory, const Plugin &plugin, const emm_plugin &table) {
    const std::pair<const char *, const char *> texts[] = {{"its name", table.name},
                                                           {"its version", table.version},
                                                           {"its description", table.description}};
    for (const auto &[what, text] : texts) {
        if (text && !memory.text(text)) {
            return refuse_stray(plugin, what, text);
        }
    }
    return EMM_OK;
}

emm_status refuse_size(const Plugin &plugin, uint32_t size) {
    return refuse({.code = EMM_E_PLUGIN_INVALID,
                   .stage = "negotiate",
                   .path = plugin.path,
                   .problem = "its table ends inside the required slots (struct_size)",
                   .expected = fmt::format("at least {} bytes", required_size(plugin)),
                   .got = fmt::format("{}", size)});
}

emm_status negotiate(Plugin &plugin) {
    const emm_plugin &own = *plugin.own;
    constexpr uint32_t version_end = offsetof(emm_plugin, interface_minor);
    if (own.struct_size < version_end) {
        return refuse_size(plugin, own.struct_size);
    }
    plugin.abi_major = own.interface_version;
    if (own.interface_version != EMM_PLUGIN_ABI_MAJOR) {
        return refuse({.code = EMM_E_PLUGIN_VERSION,
                       .stage = "negotiate",
                       .path = plugin.path,
                       .problem = "its table is of another major version of the plugin ABI",
                       .expected = fmt::format("major version {}", EMM_PLUGIN_ABI_MAJOR),
                       .got = fmt::format("major version {}", own.interface_version),
                       .hint = "interface_version is EMM_PLUGIN_ABI_MAJOR of the header that the "
                               "plugin is built with"});
    }
    if (own.struct_size < required_size(plugin)) {
        return refuse_size(plugin, own.struct_size);
    }
    plugin.abi_minor = own.interface_minor; // any minor: newer members stand at the table's end
    if (plugin.is_layer && own.interface_minor < first_minor_of_layers) {
        return refuse({.code = EMM_E_PLUGIN_VERSION,
                       .stage = "negotiate",
                       .path = plugin.path,
                       .problem = "its table is of a minor version without layers",
                       .expected = fmt::format("minor version {} or later", first_minor_of_layers),
                       .got = fmt::format("minor version {}", own.interface_minor)});
    }
    return EMM_OK;
}

// Copies as much of the table as both sides know: it may be shorter or longer than ours. Half a
// slot counts as none.
emm_plugin known_part_of(const emm_plugin *own) {
    emm_plugin table = {};
    const size_t whole_slots = own->struct_size & ~(sizeof(emm_function) - 1);
    std::memcpy(&table, own, std::min(whole_slots, sizeof table));
    table.struct_size = sizeof table;
    return table;
}

emm_status check_name(const Plugin &plugin, const char *text) {
    constexpr size_t longest = 64;
    const std::string_view name = text ? text : "";
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-_.", c);
    };
    if (!name.empty() && name.size() <= longest && std::all_of(name.begin(), name.end(), allowed)) {
        return EMM_OK;
    }
    return refuse_table(plugin.path, "its name is not valid",
                        "1 to 64 of a-z, 0-9, '-', '_' and '.'",
                        text ? fmt::format("'{}'", name.substr(0, longest)) : "NULL");
}

emm_status check_required(const Plugin &plugin, const Slots &slots) {
    std::string missing;
    for (const Slot slot : required_of(plugin)) {
        if (!slots[index(slot)]) {
            missing += (missing.empty() ? "" : ", ") + std::string(name(slot));
        }
    }
    return missing.empty() ? EMM_OK
                           : refuse_table(plugin.path, "its table lacks required slots",
                                          plugin.is_layer ? "create and destroy"
                                                          : "create, destroy, memalloc and memfree",
                                          "NULL for " + missing);
}

emm_status check_pairs(const Plugin &plugin, const Slots &slots) {
    for (const auto &[take, give] : pairs) {
        const bool has_take = slots[index(take)] != nullptr;
        if (has_take != (slots[index(give)] != nullptr)) {
            return refuse_table(plugin.path, "its table lacks one slot of a pair",
                                fmt::format("{} and {}, or neither", name(take), name(give)),
                                fmt::format("{} alone", name(has_take ? take : give)));
        }
    }
    return EMM_OK;
}

void set_slots(emm_plugin &table, const Slots &slots) {
    std::memcpy(static_cast<void *>(&table.create), slots.data(), sizeof slots);
}

// The slots of a layer stay NULL.
void fill(Plugin &plugin, const emm_plugin &defaults) {
    Slots slots = slots_of(plugin.table);
    const Slots fallback = plugin.is_layer ? Slots{} : slots_of(defaults);
    for (size_t i = 0; i < slots.size(); ++i) {
        if (!slots[i]) {
            slots[i] = fallback[i];
            plugin.defaulted |= UINT64_C(1) << i;
        }
    }
    set_slots(plugin.table, slots);
}

void name_functions(Plugin &plugin) {
    for (size_t i = 0; i < plugin.running_texts.size(); i++) {
        plugin.running_texts[i] = observe::running_text(slot_names[i], plugin.file_or_name());
    }
}

// The table of slots that a layer may call.
emm_plugin table_below(const Plugin &plugin) {
    Slots slots = slots_of(plugin.table);
    for (size_t i = 0; i < slots.size(); ++i) {
        slots[i] = is_called_for_each_member(static_cast<Slot>(i)) ? nullptr : slots[i];
    }
    emm_plugin table = plugin.table;
    set_slots(table, slots);
    return table;
}

void put_over(const Plugin &layer, uint8_t position, Plugin &ret) {
    Slots slots = slots_of(ret.table);
    const Slots filled = slots_of(layer.table);
    for (size_t i = 0; i < slots.size(); ++i) {
        if (filled[i] && !is_called_for_each_member(static_cast<Slot>(i))) {
            slots[i] = filled[i];
            ret.filled_by[i] = position;
            ret.running_texts[i] = layer.running_texts[i];
            ret.defaulted &= ~(UINT64_C(1) << i);
        }
    }
    set_slots(ret.table, slots);
    ret.table.capabilities = capabilities_over(ret.table.capabilities, layer.table.capabilities);
    ret.name = layer.name + "+" + ret.name;
}

} // namespace

Plugin stack_of(const std::vector<const Plugin *> &members) {
    Plugin stack = *members.front();
    stack.members = members;
    for (size_t i = 1; i < members.size(); ++i) {
        stack.below.push_back(table_below(stack));
        put_over(*members[i], static_cast<uint8_t>(i), stack);
    }
    return stack;
}

emm_status take_table(emm_plugin_entry entry, const emm_host &host, const emm_plugin &defaults,
                      Plugin &ret_plugin) {
    EMM_TRY(call_entry(entry, host, ret_plugin));
    const Mapped memory = ret_plugin.path.empty()
                              ? Mapped::everywhere()
                              : Mapped::around(reinterpret_cast<const void *>(entry));
    EMM_TRY(check_memory(memory, ret_plugin));
    EMM_TRY(negotiate(ret_plugin));
    const emm_plugin table = known_part_of(ret_plugin.own);
    const Slots slots = slots_of(table);
    EMM_TRY(check_texts(memory, ret_plugin, table));
    EMM_TRY(check_name(ret_plugin, table.name));
    ret_plugin.name = table.name;
    EMM_TRY(check_required(ret_plugin, slots));
    EMM_TRY(check_pairs(ret_plugin, slots));
    EMM_TRY(check_options(memory, table.options, ret_plugin));
    ret_plugin.version = observe::one_line(observe::bounded(table.version));
    ret_plugin.description = observe::one_line(observe::bounded(table.description));
    ret_plugin.table = table;
    ret_plugin.table.options = ret_plugin.options.data();
    fill(ret_plugin, defaults);
    name_functions(ret_plugin);
    return EMM_OK;
}

} // namespace emm::loader
