#pragma once

#include <emm/plugin.h>

#include <string>

namespace emm::driver {

// An open libcuda, and how to ask it for entry points. It is never closed.
struct Library {
    void *handle = nullptr;
    void *get_proc_address = nullptr; // cuGetProcAddress_v2
    std::string path;
    bool simulated = false;

    emm_function entry(const char *name, int cuda_version) const noexcept;

    // What the simulated driver has to say about its settings; "" if nothing, or if it is another.
    std::string complaint() const;
};

// A libcuda that comes into the process while one of these lives came with a plugin. It is not what
// the application uses, and does not outrank EMM_DRIVER.
class PluginLoading {
public:
    PluginLoading() noexcept;
    ~PluginLoading();
    PluginLoading(const PluginLoading &) = delete;
    PluginLoading &operator=(const PluginLoading &) = delete;

private:
    void *const before_;
};

// EMM_E_NO_DRIVER, described, if there is no libcuda to be had.
emm_status open_library(Library &ret_library);

} // namespace emm::driver
