#pragma once

#include <emm/plugin.h>

#include <string>

namespace emm::driver {

// An open libcuda, and how to look up entry points in it. It is never closed.
struct Library {
    void *handle = nullptr;
    void *get_proc_address = nullptr; // cuGetProcAddress_v2
    std::string path;
    bool simulated = false;

    emm_function entry(const char *name, int cuda_version) const noexcept;

    // The simulated driver's complaint about its settings. "" if it has none, or if the driver is
    // another.
    std::string complaint() const;
};

// A libcuda that is loaded while one of these lives came with a plugin. The application does not
// use it, and EMM_DRIVER outranks it.
class PluginLoading {
public:
    PluginLoading() noexcept;
    ~PluginLoading();
    PluginLoading(const PluginLoading &) = delete;
    PluginLoading &operator=(const PluginLoading &) = delete;

private:
    void *const before_;
};

// If no libcuda can be opened, EMM_E_NO_DRIVER, described.
emm_status open_library(Library &ret_library);

} // namespace emm::driver
