#pragma once

#include "core/record/context.h"
#include "core/record/this_thread.h"
#include "observe/error.h"
#include "observe/process.h"
#include "observe/running.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace emm::core {

// Passes on a plugin's answer: describes an error, and remembers that the device is lost.
[[gnu::cold]] emm_status describe_failure(emm_context &context, const loader::Plugin &plugin,
                                          emm_status status, const char *slot) noexcept;
[[gnu::cold]] emm_status describe_failure(emm_context &context, emm_status status,
                                          const char *slot) noexcept;

// The same where there is no context.
[[gnu::cold]] emm_status describe_failure(const loader::Plugin &plugin, emm_status status,
                                          const char *slot) noexcept;

// Describes the C++ exception in flight, which left `slot`.
[[gnu::cold]] emm_status fail_of_exception(const loader::Plugin &plugin, const char *slot) noexcept;
[[gnu::cold]] emm_status fail_of_exception(const emm_context &context, const char *slot) noexcept;

// For a slot that returned success without its output, or that wrote more than the struct it was
// given.
[[gnu::cold]] emm_status fail_of_null_address(const emm_context &context,
                                              const char *slot) noexcept;
[[gnu::cold]] emm_status fail_of_overrun(const emm_context &context, const char *slot,
                                         size_t size) noexcept;

// The context could not be made current: it has died, or the driver has gone.
[[gnu::cold]] emm_status fail_of_dead_context(emm_context &context, CUresult result) noexcept;

// Calls a slot of `plugin` for one of the context's managers; for a slot that the plugin lacks,
// `self` is the host's defaults. The context is current if the plugin asks for that. A request to
// cancel the thread waits. If `comes_once`, the call ends something that has begun: the plugin gets
// it even if the driver fails twice to make the context current.
template <bool comes_once = false, class Function, class... Arguments>
emm_status call_of(emm_context &context, const loader::Plugin &plugin, emm_manager *self,
                   loader::Slot slot, Function emm_plugin::*function,
                   Arguments... arguments) noexcept {
    if (observe::is_forked_child()) [[unlikely]] { // the plugin may have forked in an outer call
        return observe::refuse_forked_child();
    }
    const char *const name = loader::slot_names[static_cast<unsigned>(slot)];
    const Uncancelled uncancelled;
    if (plugin.defaults(slot)) { // the host describes its own failures
        const emm_status status = (plugin.table.*function)(self, arguments...);
        observe::take_plugin_word(); // an unused description by a plugin is for a layer above it
        return status;
    }
    try {
        const observe::Running running(plugin.running_text(slot));
        std::optional<driver::Current> current;
        // The whole stack's capabilities count, because a layer may call those below it.
        const uint64_t capabilities = context.selection->plugin->table.capabilities;
        if ((capabilities & EMM_PLUGIN_NEEDS_CURRENT) != 0) {
            current.emplace(context.driver, context.cuda_context, context.id);
            if (comes_once && current->result() != CUDA_SUCCESS) {
                current.emplace(context.driver, context.cuda_context, context.id);
            }
            const bool is_told = comes_once && (slot == loader::Slot::destroy ||
                                                !driver::is_late(current->result()));
            if (current->result() != CUDA_SUCCESS && !is_told) {
                return fail_of_dead_context(context, current->result());
            }
        }
        return describe_failure(context, plugin.filler(slot),
                                (plugin.table.*function)(self, arguments...), name);
    } catch (...) {
        return fail_of_exception(plugin.filler(slot), name);
    }
}

// The same for the plugin of the context, and the layers over it.
template <bool comes_once = false, class Function, class... Arguments>
emm_status call(emm_context &context, loader::Slot slot, Function emm_plugin::*function,
                Arguments... arguments) noexcept {
    const loader::Plugin &plugin = *context.selection->plugin;
    emm_manager *const self =
        plugin.defaults(slot) ? context.defaults : context.managers.self(slot);
    return call_of<comes_once>(context, plugin, self, slot, function, arguments...);
}

// The same, with the slot named once.
#define EMM_CALL(context, slot, ...)                                                               \
    ::emm::core::call((context), ::emm::loader::Slot::slot,                                        \
                      &emm_plugin::slot __VA_OPT__(, ) __VA_ARGS__)
#define EMM_CALL_END(context, slot, ...)                                                           \
    ::emm::core::call<true>((context), ::emm::loader::Slot::slot,                                  \
                            &emm_plugin::slot __VA_OPT__(, ) __VA_ARGS__)

// A struct that a plugin fills, with guard bytes behind it. A plugin built for a later version may
// ignore struct_size and write a longer struct: that hits the guard bytes, and is detected.
template <class Struct> class Filled {
public:
    Filled() {
        if constexpr (requires(Struct & any) { any.struct_size; }) {
            value_.struct_size = sizeof(Struct);
        }
        std::fill(std::begin(behind_), std::end(behind_), untouched);
    }
    Struct *out() { return &value_; }

    // The slot's status, or a refusal if the slot wrote behind the struct.
    emm_status check_overrun(emm_context &context, emm_status status, const char *slot) {
        if constexpr (requires(Struct & any) { any.struct_size; }) {
            value_.struct_size = sizeof(Struct); // the copied struct ends with it
        }
        const bool whole = std::all_of(std::begin(behind_), std::end(behind_),
                                       [](unsigned char byte) { return byte == untouched; });
        return whole ? status : fail_of_overrun(context, slot, sizeof(Struct));
    }

private:
    static constexpr unsigned char untouched = 0xa5;

    Struct value_ = {};
    unsigned char behind_[1024];
};

} // namespace emm::core
