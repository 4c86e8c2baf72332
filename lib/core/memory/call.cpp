#include "core/memory/call.h"

#include "observe/error.h"
#include "observe/text.h"

#include <fmt/format.h>

#include <new>

namespace emm::core {

emm_status conclude(const loader::Plugin &plugin, emm_status status, const char *slot) noexcept {
    if (status >= EMM_OK) {
        return status;
    }
    try {
        return observe::describe(status, fmt::format("plugin {}, {}", plugin.name, slot).c_str());
    } catch (const std::bad_alloc &) {
        return observe::describe(status, slot);
    }
}

emm_status conclude(emm_context &context, emm_status status, const char *slot) noexcept {
    if (status == EMM_E_DEVICE_LOST) {
        context.state.fetch_or(state_device_lost, std::memory_order_relaxed);
    }
    return conclude(*context.selection->plugin, status, slot);
}

emm_status conclude_exception(const loader::Plugin &plugin, const char *slot) noexcept {
    return observe::fail(EMM_E_PLUGIN_EXCEPTION, 0, "plugin {}, {}: a C++ exception came out: {}",
                         plugin.name, slot, observe::what_is_thrown());
}

emm_status conclude_exception(const emm_context &context, const char *slot) noexcept {
    return conclude_exception(*context.selection->plugin, slot);
}

emm_status conclude_nothing(const emm_context &context, const char *slot) noexcept {
    return observe::fail(EMM_E_PLUGIN_FAILED, 0,
                         "plugin {}, {}: it answered success and gave no address",
                         context.selection->plugin->name, slot);
}

emm_status conclude_overrun(const emm_context &context, const char *slot, size_t size) noexcept {
    return observe::fail(EMM_E_PLUGIN_FAILED, 0,
                         "plugin {}, {}: it wrote past the {} bytes of the struct that it was to "
                         "fill",
                         context.selection->plugin->name, slot, size);
}

emm_status conclude_own_exception(const char *slot) noexcept {
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "{}: out of host memory", slot);
}

emm_status conclude_unreachable(emm_context &context, CUresult result) noexcept {
    if (driver::is_late(result)) {
        context.state.fetch_or(state_retired, std::memory_order_relaxed);
    }
    return driver::fail(result, "making the context current");
}

} // namespace emm::core
