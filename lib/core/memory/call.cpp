#include "core/memory/call.h"

#include "observe/error.h"
#include "observe/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <string_view>

namespace emm::core {
namespace {

// The plugin or layer that fills the slot.
const loader::Plugin &filler(const emm_context &context, std::string_view slot) noexcept {
    const auto found =
        std::find(std::begin(loader::slot_names), std::end(loader::slot_names), slot);
    return context.selection->plugin->filler(
        static_cast<loader::Slot>(found - std::begin(loader::slot_names)));
}

} // namespace

emm_status describe_failure(const loader::Plugin &plugin, emm_status status,
                            const char *slot) noexcept {
    if (status >= EMM_OK) {
        return status;
    }
    try {
        return observe::describe(
            status, fmt::format("{} {}, {}", plugin.kind(), plugin.name, slot).c_str());
    } catch (const std::bad_alloc &) {
        return observe::describe(status, slot);
    }
}

emm_status describe_failure(emm_context &context, const loader::Plugin &plugin, emm_status status,
                            const char *slot) noexcept {
    if (status == EMM_E_DEVICE_LOST) {
        context.state.fetch_or(state_device_lost, std::memory_order_relaxed);
    }
    return describe_failure(plugin, status, slot);
}

emm_status describe_failure(emm_context &context, emm_status status, const char *slot) noexcept {
    return describe_failure(context, filler(context, slot), status, slot);
}

emm_status fail_of_exception(const loader::Plugin &plugin, const char *slot) noexcept {
    return observe::fail(EMM_E_PLUGIN_EXCEPTION, 0, "{} {}, {}: it threw a C++ exception: {}",
                         plugin.kind(), plugin.name, slot, observe::what_is_thrown());
}

emm_status fail_of_exception(const emm_context &context, const char *slot) noexcept {
    return fail_of_exception(filler(context, slot), slot);
}

emm_status fail_of_null_address(const emm_context &context, const char *slot) noexcept {
    const loader::Plugin &plugin = filler(context, slot);
    return observe::fail(EMM_E_PLUGIN_FAILED, 0,
                         "{} {}, {}: it returned success without an address", plugin.kind(),
                         plugin.name, slot);
}

emm_status fail_of_overrun(const emm_context &context, const char *slot, size_t size) noexcept {
    const loader::Plugin &plugin = filler(context, slot);
    return observe::fail(EMM_E_PLUGIN_FAILED, 0,
                         "{} {}, {}: it wrote past the {} bytes of the caller's struct",
                         plugin.kind(), plugin.name, slot, size);
}

emm_status fail_of_dead_context(emm_context &context, CUresult result) noexcept {
    if (driver::is_late(result)) {
        context.state.fetch_or(state_retired, std::memory_order_relaxed);
    }
    return driver::fail(result, "making the context current");
}

} // namespace emm::core
