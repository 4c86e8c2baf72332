#include "loader/loader.h"

#include "driver/library.h"
#include "loader/file.h"
#include "loader/options.h"
#include "loader/refusal.h"
#include "loader/text.h"
#include "observe/log.h"
#include "observe/text.h"

#include <cstring>
#include <map>
#include <memory>
#include <utility>

namespace emm::loader {
namespace {

// What a plugin is known by: its file, or the address of a linked-in plugin's entry function.
using Key = std::pair<FileIdentity, uintptr_t>;

// The plugins of this process, each loaded once. `load` makes what is not there; after a failure
// the next call tries again.
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
    ret.path = observe::one_line(file.path());
    EMM_TRY(check_elf(file.descriptor(), file.path(), ret.build_id));
    const driver::PluginLoading bringing;
    emm_plugin_entry entry = nullptr;
    EMM_TRY(open_library(file.path(), entry));
    EMM_TRY(file.check_unchanged());
    return take_table(entry, host, defaults, ret);
}

void announce(const Selection &selection, const std::string &place) {
    const Plugin &plugin = *selection.plugin;
    std::string line = "plugin " + plugin.name;
    line += plugin.version.empty() ? "" : " " + plugin.version;
    line += plugin.path.empty() ? ", linked in" : ", " + plugin.path;
    line += plugin.build_id.empty() ? "" : " (build id " + plugin.build_id + ")";
    line += ", chosen by " + selection.selected_by + " '" + selection.spec + "'";
    line += place.empty() ? "" : ", found in " + place;
    observe::log(EMM_LOG_INFO, line);
}

emm_status select(const Plugin &plugin, const std::vector<Setting> &settings, std::string spec,
                  const std::string &place, const emm_host &host, Selection &ret) {
    std::vector<const char *> texts = default_values(plugin);
    EMM_TRY(apply_settings(plugin, settings, texts));
    EMM_TRY(check_values(plugin, host, texts));
    ret.option_texts = std::move(texts);
    ret.plugin = &plugin;
    ret.spec = std::move(spec);
    announce(ret, place);
    return EMM_OK;
}

std::string spec_text(const std::string &name, const std::vector<Setting> &settings) {
    std::string text = encode(name);
    const char *separator = ":";
    for (const Setting &setting : settings) {
        text += separator + setting.key + "=" + encode(setting.value);
        separator = ",";
    }
    return text;
}

bool is_same(const char *one, const char *other) noexcept {
    return one == other || (one && other && std::strcmp(one, other) == 0);
}

// The options whose values are not the plugin's defaults.
std::vector<Setting> chosen_settings(const Selection &selection) {
    const Plugin &plugin = *selection.plugin;
    const std::vector<const char *> defaults = default_values(plugin);
    std::vector<Setting> chosen;
    for (size_t i = 0; i < defaults.size(); ++i) {
        if (!is_same(selection.option_texts[i], defaults[i])) {
            chosen.push_back({plugin.options[i].name, selection.option_texts[i]});
        }
    }
    return chosen;
}

} // namespace

emm_status load(const Search &search, const Spec &spec, const emm_host &host,
                const emm_plugin &defaults, Selection &ret_selection) {
    Found found;
    EMM_TRY(find(search, spec, found));
    PluginFile file;
    EMM_TRY(file.open(found));
    EMM_TRY(file.check_trust(search));
    const Plugin *plugin = nullptr;
    EMM_TRY(obtain(
        {file.identity(), 0}, [&](Plugin &ret) { return load_file(file, host, defaults, ret); },
        plugin));
    return select(*plugin, spec.settings, spec.text, found.place, host, ret_selection);
}

emm_status load(const Spec &spec, const emm_host &host, const emm_plugin &defaults,
                Selection &ret_selection) {
    return load(process_search(), spec, host, defaults, ret_selection);
}

emm_status load_entry(emm_plugin_entry entry, const std::vector<Setting> &settings,
                      const emm_host &host, const emm_plugin &defaults, Selection &ret_selection) {
    const Plugin *plugin = nullptr;
    EMM_TRY(obtain(
        {{}, reinterpret_cast<uintptr_t>(entry)},
        [&](Plugin &ret) { return take_table(entry, host, defaults, ret); }, plugin));
    return select(*plugin, settings, spec_text(plugin->name, settings), "", host, ret_selection);
}

emm_status derive(const Selection &base, const std::vector<Setting> &settings,
                  Selection &ret_selection) {
    std::vector<const char *> texts = base.option_texts;
    EMM_TRY(apply_settings(*base.plugin, settings, texts));
    ret_selection.plugin = base.plugin;
    ret_selection.option_texts = std::move(texts);
    ret_selection.spec = spec_text(base.plugin->name, chosen_settings(ret_selection));
    return EMM_OK;
}

emm_status check_selection(const emm_host &host, const Selection &selection) {
    return check_values(*selection.plugin, host, selection.option_texts);
}

const emm_option *find_difference(const Selection &one, const Selection &other) noexcept {
    for (size_t i = 0; i < one.option_texts.size(); ++i) {
        if (!is_same(one.option_texts[i], other.option_texts[i])) {
            return &one.plugin->options[i];
        }
    }
    return nullptr;
}

} // namespace emm::loader
