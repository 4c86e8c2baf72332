#pragma once

#include "observe/running.h"

#include <emm/plugin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace emm::loader {

#define EMM_LOADER_EACH_SLOT(apply)                                                                \
    apply(create) apply(destroy) apply(initialize) apply(memalloc) apply(memfree)                  \
        apply(memhostalloc) apply(memhostfree) apply(mempin) apply(memunpin)                       \
            apply(memallocmanaged) apply(memfreemanaged) apply(get_memory_info)                    \
                apply(get_ipc_handle) apply(release_ipc_handle) apply(reset) apply(defer_cleanup)  \
                    apply(trim) apply(query) apply(record_use) apply(stream_notice)                \
                        apply(set_access) apply(get_stats) apply(get_device_total)                 \
                            apply(check_options) apply(pause) apply(resume) apply(set_option)      \
                                apply(reset_peaks) apply(read_paused)

// The functions of emm_plugin by their position behind the data members; Slot::memalloc is
// memalloc's.
enum class Slot : unsigned {
#define EMM_LOADER_INDEX(slot)                                                                     \
    slot = (offsetof(emm_plugin, slot) - offsetof(emm_plugin, create)) / sizeof(emm_function),
    EMM_LOADER_EACH_SLOT(EMM_LOADER_INDEX)
#undef EMM_LOADER_INDEX
};

#define EMM_LOADER_NAME(slot) #slot,
inline constexpr const char *slot_names[] = {EMM_LOADER_EACH_SLOT(EMM_LOADER_NAME)};
#undef EMM_LOADER_NAME

using Slots = std::array<emm_function, (sizeof(emm_plugin) - offsetof(emm_plugin, create)) /
                                           sizeof(emm_function)>;
static_assert(std::size(slot_names) == std::tuple_size_v<Slots>, "a slot has no name");
static_assert(std::tuple_size_v<Slots> <= 64, "Plugin::defaulted has a bit for each slot");

// A loaded and valid plugin. It lives as long as the process, once for each file or linked-in entry
// function.
struct Plugin {
    emm_plugin table = {}; // every slot is filled: by the plugin or by a default
    // The table that the plugin returned; may be shorter than the type.
    const emm_plugin *own = nullptr;
    uint64_t defaulted = 0; // bit Slot::x is set if x is a default; for a layer, if x is NULL
    bool is_layer = false;  // its NULL slots stay NULL: the slots below it apply
    std::string name, version, description;
    std::string path;     // the real path, whatever its bytes; empty for a linked-in plugin
    std::string build_id; // hexadecimal; empty if the file has none
    uint32_t abi_major = 0, abi_minor = 0;
    // Ends with a NULL name. The texts can be shown as they are; `default_texts` has the plugin's
    // own default values, in the same order.
    std::vector<emm_option> options;
    std::vector<const char *> default_texts;
    // The texts for its functions while they run, by slot.
    std::array<observe::RunningText, std::size(slot_names)> running_texts = {};

    // For a stack: the plugin and its layers upwards; which of them fills each slot; and for each
    // layer the table below it. Otherwise `members` is empty.
    std::vector<const Plugin *> members;
    std::array<uint8_t, std::size(slot_names)> filled_by = {};
    std::vector<emm_plugin> below;

    const Plugin &filler(Slot slot) const {
        return members.empty() ? *this : *members[filled_by[static_cast<unsigned>(slot)]];
    }
    const Plugin &bottom() const { return members.empty() ? *this : *members.front(); }
    const char *kind() const { return is_layer ? "layer" : "plugin"; }
    const std::string &file_or_name() const { return path.empty() ? name : path; }
    const observe::RunningText &running_text(Slot slot) const {
        return running_texts[static_cast<unsigned>(slot)];
    }
    bool defaults(Slot slot) const { return (defaulted >> static_cast<unsigned>(slot) & 1) != 0; }
};

// The capabilities of a layer over the stack below. Most layers have all bits but NEEDS_CURRENT:
// they change nothing.
constexpr uint64_t capabilities_over(uint64_t below, uint64_t layer) {
    return (below & layer) | ((below | layer) & EMM_PLUGIN_NEEDS_CURRENT) |
           (below & EMM_PLUGIN_OPAQUE);
}

// emm itself calls these slots of the plugin and of each layer.
constexpr bool is_called_for_each_member(Slot slot) {
    return slot == Slot::create || slot == Slot::destroy || slot == Slot::initialize ||
           slot == Slot::reset || slot == Slot::get_device_total || slot == Slot::check_options;
}

// A layer with the settings of one spec.
struct SelectedLayer {
    std::string spec;
    std::vector<const char *> option_texts;
};

// A plugin with the settings of one spec. The texts live as long as the process.
struct Selection {
    const Plugin *plugin = nullptr; // with layers, their stack
    std::string spec;
    std::string selected_by;                // for the log: "EMM_PLUGIN", ...
    std::vector<const char *> option_texts; // in the order of plugin->options; NULL: no value
    std::vector<SelectedLayer> layers;      // upwards: layers[i] is of plugin->members[i + 1]
};

// Maps the library and finds the entry function of a plugin or layer, which the library itself must
// export. The library stays mapped until the process ends, also after a failure.
emm_status open_library(const std::string &path, bool is_layer, emm_plugin_entry &ret_entry);

// Makes one plugin of a plugin and its layers upwards: each slot is that of the outermost member
// which fills it.
Plugin stack_of(const std::vector<const Plugin *> &members);

// Calls the entry function. If the returned table keeps the ABI's rules, copies it to ret_plugin,
// slot by slot. `ret_plugin.path` is set already, or empty for a linked-in plugin; so is
// `is_layer`.
emm_status take_table(emm_plugin_entry entry, const emm_host &host, const emm_plugin &defaults,
                      Plugin &ret_plugin);

} // namespace emm::loader
