#include "loader/loader.h"

#include "driver/library.h"
#include "loader/file.h"
#include "loader/options.h"
#include "loader/refusal.h"
#include "loader/text.h"
#include "observe/log.h"
#include "observe/text.h"

#include <compare>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace emm::loader {
namespace {

// The plugins of this process, each loaded once. Threads that race for one wait for the first; no
// lock is held meanwhile, because loading runs the plugin's code.
class LoadedPlugins {
public:
    struct Key {
        FileIdentity file;
        uintptr_t entry = 0; // address of a linked-in plugin's entry function
        auto operator<=>(const Key &) const = default;
    };
    using Load = std::function<emm_status(Plugin &ret_plugin)>;

    // Gives the plugin known by `key`, and calls `load` to make it if there is none. After a
    // failure there is none, and the next call tries again.
    emm_status obtain(const Key &key, const Load &load, const Plugin *&ret_plugin);

    static LoadedPlugins &process();

private:
    struct Entry {
        std::thread::id loading;
        std::unique_ptr<const Plugin> plugin; // empty while it is being loaded
    };
    class Loading;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Key, Entry> entries_;
};

// The claim on an entry that is being loaded: withdrawn unless a plugin comes of it.
class LoadedPlugins::Loading {
public:
    Loading(LoadedPlugins &plugins, const Key &key) : plugins_(plugins), key_(key) {}
    Loading(const Loading &) = delete;
    Loading &operator=(const Loading &) = delete;

    const Plugin *finish(std::unique_ptr<const Plugin> plugin) {
        std::lock_guard lock(plugins_.mutex_);
        finished_ = true;
        Entry &entry = plugins_.entries_[key_];
        entry.plugin = std::move(plugin);
        plugins_.changed_.notify_all();
        return entry.plugin.get();
    }

    ~Loading() {
        if (!finished_) {
            std::lock_guard lock(plugins_.mutex_);
            plugins_.entries_.erase(key_);
            plugins_.changed_.notify_all();
        }
    }

private:
    LoadedPlugins &plugins_;
    const Key &key_;
    bool finished_ = false;
};

emm_status LoadedPlugins::obtain(const Key &key, const Load &load, const Plugin *&ret_plugin) {
    std::unique_lock lock(mutex_);
    for (auto it = entries_.find(key); it != entries_.end(); it = entries_.find(key)) {
        if (it->second.plugin) {
            ret_plugin = it->second.plugin.get();
            return EMM_OK;
        }
        if (it->second.loading == std::this_thread::get_id()) {
            return refuse({.code = EMM_E_REENTERED,
                           .stage = "symbol",
                           .problem = "a plugin's entry function asked for the plugin that it is "
                                      "the entry of"});
        }
        changed_.wait(lock);
    }
    entries_[key].loading = std::this_thread::get_id();
    lock.unlock();

    Loading loading(*this, key);
    auto plugin = std::make_unique<Plugin>();
    EMM_TRY(load(*plugin));
    ret_plugin = loading.finish(std::move(plugin));
    return EMM_OK;
}

LoadedPlugins &LoadedPlugins::process() {
    static auto *const plugins = new LoadedPlugins;
    return *plugins;
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
    std::vector<const char *> texts;
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

} // namespace

emm_status load(const Search &search, const Spec &spec, const emm_host &host,
                const emm_plugin &defaults, Selection &ret_selection) {
    Found found;
    EMM_TRY(find(search, spec, found));
    PluginFile file;
    EMM_TRY(file.open(found));
    EMM_TRY(file.check_trust(search));
    const Plugin *plugin = nullptr;
    if (emm_status status = LoadedPlugins::process().obtain(
            {file.identity(), 0}, [&](Plugin &ret) { return load_file(file, host, defaults, ret); },
            plugin)) {
        return status;
    }
    return select(*plugin, spec.settings, spec.text, found.place, host, ret_selection);
}

emm_status load(const Spec &spec, const emm_host &host, const emm_plugin &defaults,
                Selection &ret_selection) {
    return load(process_search(), spec, host, defaults, ret_selection);
}

emm_status load_entry(emm_plugin_entry entry, const std::vector<Setting> &settings,
                      const emm_host &host, const emm_plugin &defaults, Selection &ret_selection) {
    const Plugin *plugin = nullptr;
    if (emm_status status = LoadedPlugins::process().obtain(
            {{}, reinterpret_cast<uintptr_t>(entry)},
            [&](Plugin &ret) { return take_table(entry, host, defaults, ret); }, plugin)) {
        return status;
    }
    return select(*plugin, settings, spec_text(plugin->name, settings), "", host, ret_selection);
}

} // namespace emm::loader
