#pragma once

#include "loader/file.h"
#include "loader/plugin.h"

#include <compare>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace emm::loader {

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

} // namespace emm::loader
