#include "observe/error.h"

namespace {

struct StatusRow {
    emm_status status;
    const char *name;
    const char *text;
};

#define EMM_ROW(status, text)                                                                      \
    { status, #status, text }
constexpr StatusRow status_rows[] = {
    EMM_ROW(EMM_OK, "success"),
    EMM_ROW(EMM_S_IGNORED, "no effect: a choice made elsewhere has priority"),
    EMM_ROW(EMM_E_INVALID_VALUE, "an argument is NULL, out of range or malformed"),
    EMM_ROW(EMM_E_OUT_OF_MEMORY, "out of device memory"),
    EMM_ROW(EMM_E_OUT_OF_HOST_MEMORY, "out of host memory"),
    EMM_ROW(EMM_E_NOT_SUPPORTED, "the plugin, the driver or the device cannot do this"),
    EMM_ROW(EMM_E_BUSY, "something else is in progress or was done before"),
    EMM_ROW(EMM_E_RETIRED, "the context was retired, or has died"),
    EMM_ROW(
        EMM_E_FORKED,
        "the process was forked after its parent had loaded the driver, which a child cannot use"),
    EMM_ROW(EMM_E_DEVICE_LOST, "the device has a sticky error"),
    EMM_ROW(EMM_E_SHUT_DOWN, "emm or the driver has shut down"),
    EMM_ROW(EMM_E_DRIVER, "a driver call failed"),
    EMM_ROW(EMM_E_NO_DRIVER, "there is no usable CUDA driver"),
    EMM_ROW(EMM_E_NO_CONTEXT, "the calling thread has no current CUDA context"),
    EMM_ROW(EMM_E_NOT_OWNED, "the address is not a live allocation of this manager"),
    EMM_ROW(EMM_E_CAPTURING, "not possible while a stream captures"),
    EMM_ROW(EMM_E_PLUGIN_SPEC, "the plugin spec or an option does not parse or is unknown"),
    EMM_ROW(EMM_E_PLUGIN_NOT_FOUND, "no file has the plugin's name"),
    EMM_ROW(EMM_E_PLUGIN_UNTRUSTED, "another user could have written the plugin's file"),
    EMM_ROW(EMM_E_PLUGIN_UNLOADABLE, "the file is not a loadable plugin"),
    EMM_ROW(EMM_E_PLUGIN_VERSION, "the plugin speaks another major version of the ABI"),
    EMM_ROW(EMM_E_PLUGIN_INVALID, "the plugin's table breaks the rules of the ABI"),
    EMM_ROW(EMM_E_PLUGIN_FAILED, "the plugin failed"),
    EMM_ROW(EMM_E_PLUGIN_EXCEPTION, "a C++ exception left the plugin"),
    EMM_ROW(EMM_E_REENTERED, "the plugin called emm for the context that emm was calling it for"),
    EMM_ROW(EMM_E_ALREADY_FREED, "the memory behind the handle has been freed already"),
    EMM_ROW(EMM_E_PAUSED, "the pool is paused"),
};

const StatusRow *row_of(emm_status status) {
    for (const StatusRow &row : status_rows) {
        if (row.status == status) {
            return &row;
        }
    }
    return nullptr;
}

} // namespace

const char *emm_status_text(emm_status status) {
    if (const StatusRow *const row = row_of(status)) {
        return row->text;
    }
    return status > 0 ? "success, with a notice unknown to this version of emm"
                      : "an error unknown to this version of emm";
}

const char *emm_status_name(emm_status status) {
    if (const StatusRow *const row = row_of(status)) {
        return row->name;
    }
    return status > 0 ? "EMM_S_?" : "EMM_E_?";
}

const emm_error *emm_last_error(void) {
    return emm::observe::last_error();
}

const char *emm_version(void) {
    return EMM_VERSION;
}
