#include "core/call.h"

#include "observe/error.h"
#include "observe/text.h"

#include <exception>
#include <new>

namespace emm::core {
namespace {

std::string slot_of(const emm_context &context, const char *slot) {
    return "plugin " + context.selection->plugin->name + ", " + slot;
}

} // namespace

emm_status conclude(emm_context &context, emm_status status, const char *slot) noexcept {
    if (status >= EMM_OK) {
        return status;
    }
    if (status == EMM_E_DEVICE_LOST) {
        context.state.fetch_or(state_device_lost, std::memory_order_relaxed);
    }
    try {
        return observe::describe(status, slot_of(context, slot).c_str());
    } catch (const std::bad_alloc &) {
        return observe::describe(status, slot);
    }
}

emm_status conclude_exception(const emm_context &context, const char *slot) noexcept {
    const auto say = [&](auto what) {
        return observe::fail(EMM_E_PLUGIN_EXCEPTION, 0, [&] {
            return slot_of(context, slot) + ": a C++ exception came out: " + what();
        });
    };
    try {
        throw;
    } catch (const std::exception &error) {
        return say([&] { return observe::what_of(error); });
    } catch (...) {
        return say([] { return "an exception that is no std::exception"; });
    }
}

emm_status conclude_nothing(const emm_context &context, const char *slot) noexcept {
    return observe::fail(EMM_E_PLUGIN_FAILED, 0, [&] {
        return slot_of(context, slot) + ": it answered success and gave no address";
    });
}

emm_status conclude_overrun(const emm_context &context, const char *slot, size_t size) noexcept {
    return observe::fail(EMM_E_PLUGIN_FAILED, 0, [&] {
        return slot_of(context, slot) + ": it wrote past the " + std::to_string(size) +
               " bytes of the struct that it was to fill";
    });
}

emm_status conclude_own_exception(const char *slot) noexcept {
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0,
                         [=] { return std::string(slot) + ": out of host memory"; });
}

emm_status conclude_unreachable(emm_context &context, CUresult result) noexcept {
    if (driver::is_late(result)) {
        context.state.fetch_or(state_retired, std::memory_order_relaxed);
    }
    return driver::fail(result, "making the context current");
}

} // namespace emm::core
