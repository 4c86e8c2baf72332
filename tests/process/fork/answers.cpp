#include "children.h"

#include <emm/plugin.h>

namespace forked {

Things things;
const emm_host *services = nullptr;

emm_status ignore(void *, uint32_t) {
    return EMM_OK;
}

namespace {

void call_each(const std::vector<Entry> &table) {
    for (const Entry &entry : table) {
        say_doing(entry.name);
        if (!entry.is_refused(things)) {
            say_wrong(entry.allowed ? "it should go on in a child" : "it should be refused");
        }
    }
}

void call_services() {
    if (!services) {
        return;
    }
    auto source = sized<emm_ipc_source>();
    emm_ipc_handle handle = {};
    say_doing("host->log");
    services->log(EMM_LOG_DEBUG, "from a forked child");
    say_doing("host->fail");
    services->fail(EMM_E_PLUGIN_FAILED, 0, "from a forked child");
    say_doing("host->driver");
    services->driver("cuInit", 12000) ? say_wrong("it should give nothing") : void();
    say_doing("host->defer");
    const bool refused = services->defer(things.context, &ignore, nullptr, 64) == EMM_E_FORKED &&
                         services->pressure(things.context, 64) == 0 &&
                         services->serve_ipc(things.context, &source, &handle) == EMM_E_FORKED &&
                         services->withdraw_ipc(things.context, &handle) == EMM_E_FORKED;
    refused ? void() : say_wrong("a service should be refused");
}

} // namespace

void be_refused() {
    call_each(entries());
    call_each(bridge_entries());
    call_services();
}

void answer_at_all() {
    say_doing("emm_get_plugin");
    auto plugin = sized<emm_plugin_info>();
    const emm_status got = emm_get_plugin(&plugin);
    say_doing("emm_set_plugin");
    const emm_status set = emm_set_plugin("passthrough");
    say_doing("emm_get_driver");
    auto driver = sized<emm_driver_info>();
    const emm_status driven = emm_get_driver(&driver);
    say_doing("emm_context_for_device");
    emm_context *context = nullptr;
    const emm_status made = emm_context_for_device(0, &context);
    const bool all = got >= EMM_OK && set >= EMM_OK && driven == EMM_OK && made == EMM_OK;
    const bool none = got == EMM_E_FORKED && set == EMM_E_FORKED && driven == EMM_E_FORKED &&
                      made == EMM_E_FORKED;
    all || none ? void() : say_wrong("it is served by halves");
}

void go_on() {
    say_doing("going on");
    emm_context *context = nullptr;
    emm_deviceptr ptr = 0;
    const bool served = emm_context_for_device(0, &context) == EMM_OK &&
                        emm_memalloc(context, 4096, EMM_STREAM_LEGACY, &ptr) == EMM_OK &&
                        emm_memfree(context, ptr, 4096, EMM_STREAM_LEGACY) == EMM_OK;
    served ? void() : say_wrong("it should be served");
}

} // namespace forked
