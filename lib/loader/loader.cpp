#include "loader/loader.h"

#include "driver/library.h"
#include "loader/file.h"
#include "loader/options.h"
#include "loader/refusal.h"
#include "loader/text.h"
#include "observe/log.h"

#include <map>
#include <memory>
#include <utility>

namespace emm::loader {
namespace {

// The identity of a loaded plugin. The second member is 0 for a plugin's file,
// 1 for a layer's, and for a linked-in plugin the address of its entry function.
using Key = std::pair<FileIdentity, uintptr_t>;

// Finds a plugin of this process, or loads it with `load`; each is loaded once. After a failure the
// next call tries again.
template <class Load> emm_status obtain(const Key &key, Load load, const Plugin *&ret_plugin) {
    static auto *const plugins = new std::map<Key, std::unique_ptr<const Plugin>>;
    std::unique_ptr<const Plugin> &plugin = (*plugins)[key];
    if (!plugin) {
        auto made = std::make_unique<Plugin>();
        EMM_TRY(load(*made));
        plugin = std::move(made);
    }
    ret_plugin = plugin.get();
    return EMM_OK;
}

emm_status load_file(const PluginFile &file, const emm_host &host, const emm_plugin &defaults,
                     Plugin &ret) {
    ret.path = file.path();
    EMM_TRY(check_elf(file.descriptor(), file.path(), ret.build_id));
    const driver::PluginLoading bringing;
    emm_plugin_entry entry = nullptr;
    EMM_TRY(open_library(file.path(), ret.is_layer, entry));
    EMM_TRY(file.check_unchanged());
    return take_table(entry, host, defaults, ret);
}

// The stacks of this process; contexts keep using them.
const Plugin *stack(std::vector<const Plugin *> members) {
    static auto *const stacks = new std::map<std::vector<const Plugin *>, const Plugin>;
    const auto found = stacks->find(members);
    return found != stacks->end() ? &found->second
                                  : &stacks->emplace(members, stack_of(members)).first->second;
}

void announce(const Plugin &plugin, const std::string &place, const std::string &spec,
              const std::string &selected_by) {
    std::string line = plugin.kind() + (" " + plugin.name);
    line += plugin.version.empty() ? "" : " " + plugin.version;
    line += plugin.path.empty() ? ", linked in" : ", " + plugin.path;
    line += plugin.build_id.empty() ? "" : " (build id " + plugin.build_id + ")";
    line += ", chosen by " + selected_by + " '" + spec + "'";
    line += place.empty() ? "" : ", found in " + place;
    observe::log(EMM_LOG_INFO, line);
}

emm_status choose_values(const Plugin &plugin, const std::vector<Setting> &settings,
                         const emm_host &host, std::vector<const char *> &ret_texts) {
    ret_texts = default_values(plugin);
    EMM_TRY(apply_settings(plugin, settings, ret_texts));
    return check_values(plugin, host, ret_texts);
}

// A plugin or a layer, with the values of its options.
struct Part {
    const Plugin *plugin = nullptr;
    std::string place;
    std::vector<const char *> texts;
};

emm_status load_part(const Search &search, const Spec &spec, bool is_layer, const emm_host &host,
                     const emm_plugin &defaults, Part &ret) {
    const LoadingLayer naming(is_layer);
    Found found;
    EMM_TRY(find(search, spec, found));
    PluginFile file;
    EMM_TRY(file.open(found));
    EMM_TRY(file.check_trust(search));
    const auto load = [&](Plugin &made) {
        made.is_layer = is_layer;
        return load_file(file, host, defaults, made);
    };
    EMM_TRY(obtain({file.identity(), is_layer}, load, ret.plugin));
    ret.place = found.place;
    if (spec.is_described && spec.settings.empty()) {
        ret.texts = default_values(*ret.plugin); // a required one may be missing
        return EMM_OK;
    }
    return choose_values(*ret.plugin, spec.settings, host, ret.texts);
}

// `height`: 1 is the layer directly above the plugin. A spec names the outermost layer first.
const Spec &layer_at(const Spec &spec, size_t height) {
    return spec.layers[spec.layers.size() - height];
}

Selection selection_of(const Spec &spec, std::vector<Part> parts, std::string selected_by) {
    Selection selection;
    selection.spec = spec.text;
    selection.selected_by = std::move(selected_by);
    selection.option_texts = std::move(parts.front().texts);
    std::vector<const Plugin *> members = {parts.front().plugin};
    for (size_t i = 1; i < parts.size(); ++i) {
        selection.layers.push_back({layer_at(spec, i).text, std::move(parts[i].texts)});
        members.push_back(parts[i].plugin);
    }
    selection.plugin = parts.size() == 1 ? parts.front().plugin : stack(std::move(members));
    return selection;
}

std::string spec_text(const Selection &selection, const std::vector<Setting> &settings) {
    std::string text;
    for (const SelectedLayer &layer : selection.layers) {
        text.insert(0, layer.spec + "+");
    }
    text += encode(selection.plugin->bottom().name);
    const char *separator = ":";
    for (const Setting &setting : settings) {
        text += separator + setting.key + "=" + encode(setting.value);
        separator = ",";
    }
    return text;
}

// The options whose values are not the plugin's defaults.
std::vector<Setting> chosen_settings(const Selection &selection) {
    const Plugin &plugin = *selection.plugin;
    const std::vector<const char *> defaults = default_values(plugin);
    std::vector<Setting> chosen;
    for (size_t i = 0; i < defaults.size(); ++i) {
        if (!is_same_value(plugin.options[i], selection.option_texts[i], defaults[i])) {
            chosen.push_back({plugin.options[i].name, selection.option_texts[i]});
        }
    }
    return chosen;
}

} // namespace

emm_status load(const Search &search, const Spec &spec, std::string selected_by,
                const emm_host &host, const emm_plugin &defaults, Selection &ret_selection) {
    std::vector<Part> parts(spec.layers.size() + 1); // from the plugin upwards
    for (size_t i = spec.layers.size(); i > 0; --i) {
        EMM_TRY(load_part(search, layer_at(spec, i), true, host, defaults, parts[i]));
    }
    EMM_TRY(load_part(search, spec, false, host, defaults, parts.front()));
    for (size_t i = parts.size(); i-- > 0;) {
        announce(*parts[i].plugin, parts[i].place, spec.text, selected_by);
    }
    ret_selection = selection_of(spec, std::move(parts), std::move(selected_by));
    return EMM_OK;
}

emm_status load(const Spec &spec, std::string selected_by, const emm_host &host,
                const emm_plugin &defaults, Selection &ret_selection) {
    return load(process_search(), spec, std::move(selected_by), host, defaults, ret_selection);
}

emm_status load_entry(emm_plugin_entry entry, const std::vector<Setting> &settings,
                      std::string selected_by, const emm_host &host, const emm_plugin &defaults,
                      Selection &ret_selection) {
    const Plugin *plugin = nullptr;
    EMM_TRY(obtain(
        {{}, reinterpret_cast<uintptr_t>(entry)},
        [&](Plugin &ret) { return take_table(entry, host, defaults, ret); }, plugin));
    std::vector<const char *> texts;
    EMM_TRY(choose_values(*plugin, settings, host, texts));
    ret_selection.plugin = plugin;
    ret_selection.option_texts = std::move(texts);
    ret_selection.spec = spec_text(ret_selection, settings);
    ret_selection.selected_by = std::move(selected_by);
    announce(*plugin, "", ret_selection.spec, ret_selection.selected_by);
    return EMM_OK;
}

emm_status derive(const Selection &base, const std::vector<Setting> &settings,
                  Selection &ret_selection) {
    std::vector<const char *> texts = base.option_texts;
    EMM_TRY(apply_settings(base.plugin->bottom(), settings, texts));
    ret_selection.plugin = base.plugin;
    ret_selection.option_texts = std::move(texts);
    ret_selection.layers = base.layers;
    ret_selection.spec = spec_text(ret_selection, chosen_settings(ret_selection));
    return EMM_OK;
}

emm_status check_selection(const emm_host &host, const Selection &selection) {
    return check_values(selection.plugin->bottom(), host, selection.option_texts);
}

const emm_option *find_difference(const Selection &one, const Selection &other) noexcept {
    for (size_t i = 0; i < one.option_texts.size(); ++i) {
        const emm_option &option = one.plugin->options[i];
        if (!is_same_value(option, one.option_texts[i], other.option_texts[i])) {
            return &option;
        }
    }
    return nullptr;
}

} // namespace emm::loader
