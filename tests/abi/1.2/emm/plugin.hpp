/* emm/plugin.hpp: makes a plugin's table from a C++ class. C++11; inline, nothing to link. */
#ifndef EMM_PLUGIN_HPP
#define EMM_PLUGIN_HPP

#include <emm/plugin.h>
#include <exception>
#include <new>
#include <stdint.h>
#include <stdio.h>
#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

/*
 * emm::make_plugin<Manager>(...) makes a table from a class. The constructor takes the arguments of
 * `create`: (const emm_host &, const emm_context_info &, const char *const *option_texts). A public
 * member function, also an inherited one, fills the slot of its name; it takes the slot's arguments
 * without `self`. The other slots stay NULL. get_device_total and check_options have no manager:
 * they are static functions that take (const emm_host &, ...). An exception that leaves a
 * constructor or member becomes a status, with what() as the description. emm::PluginError becomes
 * its own status, std::bad_alloc EMM_E_OUT_OF_HOST_MEMORY, any other exception
 * EMM_E_PLUGIN_EXCEPTION.
 */
namespace emm {

class PluginError : public std::exception {
public:
    PluginError(emm_status status, int32_t driver_result, const char *text) noexcept
        : status_(status), driver_result_(driver_result) {
        snprintf(text_, sizeof text_, "%s", text);
    }
    emm_status status() const noexcept { return status_; }
    int32_t driver_result() const noexcept { return driver_result_; }
    const char *what() const noexcept override { return text_; }

private:
    emm_status status_;
    int32_t driver_result_;
    char text_[504];
};

namespace adaptor {

template <class Manager> struct Held {
    const emm_host *host;
    Manager manager;
    Held(const emm_host &h, const emm_context_info &info, const char *const *option_texts)
        : host(&h), manager(h, info, option_texts) {}
};

template <class Function> emm_status guard(const emm_host *host, Function function) {
    try {
        return function();
#if defined(__GLIBCXX__)
    } catch (const abi::__forced_unwind &) { /* the thread is cancelled */
        throw;
#endif
    } catch (const PluginError &error) {
        return host->fail(error.status(), error.driver_result(), error.what());
    } catch (const std::bad_alloc &) {
        return host->fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "the plugin ran out of host memory");
    } catch (const std::exception &error) {
        const char *text = error.what();
        return host->fail(EMM_E_PLUGIN_EXCEPTION, 0, text ? text : "an exception without a text");
    } catch (...) {
        return host->fail(EMM_E_PLUGIN_EXCEPTION, 0, "an exception that is not a std::exception");
    }
}

template <class Manager>
emm_status create(const emm_host *host, const emm_context_info *info,
                  const char *const *option_texts, emm_manager **ret_manager) {
    return guard(host, [&]() -> emm_status {
        *ret_manager =
            reinterpret_cast<emm_manager *>(new Held<Manager>(*host, *info, option_texts));
        return EMM_OK;
    });
}

template <class Manager> emm_status destroy(emm_manager *self) noexcept {
    delete reinterpret_cast<Held<Manager> *>(self);
    return EMM_OK;
}

template <class Manager, class Slot> struct Thunk;
template <class Manager, class... Arguments>
struct Thunk<Manager, emm_status (*)(emm_manager *, Arguments...)> {
    template <class Member, Member member>
    static emm_status call(emm_manager *self, Arguments... arguments) {
        Held<Manager> *held = reinterpret_cast<Held<Manager> *>(self);
        return guard(held->host, [&]() { return (held->manager.*member)(arguments...); });
    }
};

/* A slot without a manager. */
template <class Manager, class... Arguments>
struct Thunk<Manager, emm_status (*)(const emm_host *, Arguments...)> {
    template <class Member, Member member>
    static emm_status call(const emm_host *host, Arguments... arguments) {
        return guard(host, [&]() { return member(*host, arguments...); });
    }
};

/* No class can derive from a final class. Without Manager as a base, the check finds nothing. */
template <class Manager, class Name, bool is_final = __is_final(Manager)>
struct Both : Manager, Name {};
template <class Manager, class Name> struct Both<Manager, Name, true> : Name {};

/* If Manager has a member of that name, slot_NAME<Manager>(0) is the thunk, else NULL. A name that
 * both bases of Both have is ambiguous: this reveals a member whose address cannot be taken. */
#define EMM_ADAPT_(slot)                                                                           \
    struct Name_##slot {                                                                           \
        int slot;                                                                                  \
    };                                                                                             \
    template <class Class> auto lacks_##slot(int)->decltype((void)&Class::slot, char());           \
    template <class Class> long lacks_##slot(long);                                                \
    template <class Manager>                                                                       \
    auto slot_##slot(int)->decltype((void)&Manager::slot, decltype(emm_plugin::slot)()) {          \
        return &Thunk<Manager, decltype(emm_plugin::slot)>::template call<                         \
            decltype(&Manager::slot), &Manager::slot>;                                             \
    }                                                                                              \
    template <class Manager> decltype(emm_plugin::slot) slot_##slot(long) {                        \
        static_assert(sizeof(lacks_##slot<Both<Manager, Name_##slot>>(0)) == sizeof(char),         \
                      "the member `" #slot "` cannot serve as the slot of that name: it must be "  \
                      "public and not overloaded");                                                \
        return nullptr;                                                                            \
    }

#define EMM_EACH_ADAPTED_SLOT_(apply)                                                              \
    apply(initialize) apply(memalloc) apply(memfree) apply(memhostalloc) apply(memhostfree)        \
        apply(mempin) apply(memunpin) apply(memallocmanaged) apply(memfreemanaged)                 \
            apply(get_memory_info) apply(get_ipc_handle) apply(release_ipc_handle) apply(reset)    \
                apply(defer_cleanup) apply(trim) apply(query) apply(record_use)                    \
                    apply(stream_notice) apply(set_access) apply(get_stats)                        \
                        apply(get_device_total) apply(check_options) apply(pause) apply(resume)    \
                            apply(set_option) apply(reset_peaks) apply(read_paused)

EMM_EACH_ADAPTED_SLOT_(EMM_ADAPT_)

} // namespace adaptor

/* The texts and `options` must be static: string literals, and an array at namespace scope. */
template <class Manager>
emm_plugin make_plugin(const char *name, const char *version, const char *description,
                       uint64_t capabilities = 0, const emm_option *options = nullptr) {
    emm_plugin plugin = emm_plugin();
    plugin.struct_size = sizeof plugin;
    plugin.interface_version = EMM_PLUGIN_ABI_MAJOR;
    plugin.interface_minor = EMM_PLUGIN_ABI_MINOR;
    plugin.name = name;
    plugin.version = version;
    plugin.description = description;
    plugin.capabilities = capabilities;
    plugin.options = options;
    plugin.create = &adaptor::create<Manager>;
    plugin.destroy = &adaptor::destroy<Manager>;
#define EMM_ASSIGN_(slot) plugin.slot = adaptor::slot_##slot<Manager>(0);
    EMM_EACH_ADAPTED_SLOT_(EMM_ASSIGN_)
#undef EMM_ASSIGN_
    return plugin;
}

} // namespace emm

#undef EMM_ADAPT_
#undef EMM_EACH_ADAPTED_SLOT_

#endif
