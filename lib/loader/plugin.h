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
                            apply(check_options) apply(pause) apply(resume)

// The functions of emm_plugin by their position after the data; Slot::memalloc is memalloc's.
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

// A plugin that was loaded and found valid. It lives as long as the process, once for each file or
// linked-in entry function.
struct Plugin {
    emm_plugin table = {};           // every slot is filled: the plugin's own or the default
    const emm_plugin *own = nullptr; // what the plugin returned; may be shorter than the type says
    uint64_t defaulted = 0;          // bit Slot::x is set if x came from the defaults
    std::string name, version, description;
    std::string path;     // the real one; empty for a linked-in plugin
    std::string build_id; // hexadecimal; empty if the file has none
    uint32_t abi_major = 0, abi_minor = 0;
    // Ends with a NULL name. The texts are fit to be shown; `default_texts` has the plugin's own
    // default values, in the same order.
    std::vector<emm_option> options;
    std::vector<const char *> default_texts;
    // Of its functions while they run, by slot.
    std::array<observe::RunningText, std::size(slot_names)> running_texts = {};

    const std::string &file_or_name() const { return path.empty() ? name : path; }
    const observe::RunningText &running_text(Slot slot) const {
        return running_texts[static_cast<unsigned>(slot)];
    }
    bool defaults(Slot slot) const { return (defaulted >> static_cast<unsigned>(slot) & 1) != 0; }
};

// A plugin as one spec chose it. The texts live as long as the process.
struct Selection {
    const Plugin *plugin = nullptr;
    std::string spec;
    std::string selected_by; // set by the caller beforehand, for the log: "EMM_PLUGIN", ...
    std::vector<const char *> option_texts; // in the order of plugin->options; NULL: no value
};

// Maps the library and finds the entry function that it exports itself. The library stays mapped
// until the process ends, whatever happens next.
emm_status open_library(const std::string &path, emm_plugin_entry &ret_entry);

// Calls the entry function and takes what it returns into ret_plugin, slot by slot, if it keeps the
// ABI's rules. `ret_plugin.path` is set already, or empty for a linked-in plugin.
emm_status take_table(emm_plugin_entry entry, const emm_host &host, const emm_plugin &defaults,
                      Plugin &ret_plugin);

} // namespace emm::loader
