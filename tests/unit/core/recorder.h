// A plugin that is linked into the test: it allocates nothing, records its calls, and fails on
// request.
#pragma once

#include "catch.h"
#include "unit/answers.h"

#include <emm/emm.h>
#include <emm/plugin.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

class Recorder {
public:
    std::vector<std::string> calls() {
        std::lock_guard lock(mutex_);
        return calls_;
    }
    size_t count(const std::string &call) {
        std::lock_guard lock(mutex_);
        size_t found = 0;
        for (const std::string &one : calls_) {
            found += one == call;
        }
        return found;
    }
    void note(const std::string &call) {
        std::lock_guard lock(mutex_);
        calls_.push_back(call);
    }
    void clear() {
        std::lock_guard lock(mutex_);
        calls_.clear();
    }

    // The answers of the next calls. The functions may also act inside those calls.
    std::function<emm_status()> on_create = [] { return EMM_OK; };
    std::function<emm_status()> on_initialize = [] { return EMM_OK; };
    std::function<emm_status(size_t)> on_memalloc = [](size_t) { return EMM_OK; };
    std::function<emm_status()> on_memfree = [] { return EMM_OK; };
    const emm_host *host = nullptr;
    emm_context *context = nullptr;
    emm_plugin table = make_table();

    // The recorder that the entry function serves.
    static Recorder &the() {
        static Recorder recorder;
        return recorder;
    }

    static const emm_plugin *entry(const emm_host *host) {
        the().host = host;
        return &the().table;
    }

private:
    static emm_plugin make_table() {
        auto table = sized<emm_plugin>();
        table.interface_version = EMM_PLUGIN_ABI_MAJOR;
        table.name = "recorder";
        table.create = [](const emm_host *, const emm_context_info *info, const char *const *,
                          emm_manager **ret_manager) {
            the().note("create");
            the().context = info->context;
            const emm_status status = the().on_create();
            if (status >= EMM_OK) {
                *ret_manager = reinterpret_cast<emm_manager *>(&the());
            }
            return status;
        };
        table.destroy = [](emm_manager *) -> emm_status {
            the().note("destroy");
            return EMM_OK;
        };
        table.initialize = [](emm_manager *) {
            the().note("initialize");
            return the().on_initialize();
        };
        table.memalloc = [](emm_manager *, size_t size, emm_stream, emm_deviceptr *ret_ptr) {
            the().note("memalloc");
            *ret_ptr = 0xbad; // a plugin that breaks "outputs are untouched on failure"
            const emm_status status = the().on_memalloc(size);
            if (status >= EMM_OK) {
                *ret_ptr = 0x1000;
            }
            return status;
        };
        table.memfree = [](emm_manager *, emm_deviceptr, size_t, emm_stream) {
            the().note("memfree");
            return the().on_memfree();
        };
        return table;
    }

    std::mutex mutex_;
    std::vector<std::string> calls_;
};

// The context of device 0, served by the recorder.
inline emm_context *recorded_context(const char *options = nullptr) {
    expect_ok(emm_set_plugin_entry(&Recorder::entry, options));
    return context_for_device();
}

// A deferred function.
inline emm_status note_run(void *, uint32_t what) {
    Recorder::the().note(what == EMM_DEFERRED_RUN ? "run" : "drop");
    return EMM_OK;
}
