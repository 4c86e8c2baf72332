#include "loader/loaded_plugins.h"

#include "loader/refusal.h"

namespace emm::loader {

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

} // namespace emm::loader
