#include <emm/status.h>

const char *emm_status_text(emm_status status) {
    switch (status) {
    case EMM_OK:
        return "success";
    case EMM_S_IGNORED:
        return "a choice made elsewhere outranks this one, which had no effect";
    case EMM_E_INVALID_VALUE:
        return "an argument is NULL, out of range or malformed";
    case EMM_E_OUT_OF_MEMORY:
        return "out of device memory";
    case EMM_E_OUT_OF_HOST_MEMORY:
        return "out of host memory";
    case EMM_E_NOT_SUPPORTED:
        return "the plugin, the driver or the device cannot do this";
    case EMM_E_BUSY:
        return "something else is in progress or was done before";
    case EMM_E_RETIRED:
        return "the context was retired, or has died";
    case EMM_E_FORKED:
        return "the process was forked from one that had loaded the driver, which a child cannot "
               "use";
    case EMM_E_DEVICE_LOST:
        return "the device has a sticky error";
    case EMM_E_SHUT_DOWN:
        return "emm was shut down, or the driver has gone";
    case EMM_E_DRIVER:
        return "a driver call failed";
    case EMM_E_NO_DRIVER:
        return "there is no usable CUDA driver";
    case EMM_E_NO_CONTEXT:
        return "the calling thread has no current CUDA context";
    case EMM_E_NOT_OWNED:
        return "the address is not a live allocation of this manager";
    case EMM_E_CAPTURING:
        return "not possible while a stream captures";
    case EMM_E_PLUGIN_SPEC:
        return "the plugin spec or an option does not parse or is unknown";
    case EMM_E_PLUGIN_NOT_FOUND:
        return "no file answers to the plugin's name";
    case EMM_E_PLUGIN_UNTRUSTED:
        return "another user could have written the plugin's file";
    case EMM_E_PLUGIN_UNLOADABLE:
        return "the file is not a loadable plugin";
    case EMM_E_PLUGIN_VERSION:
        return "the plugin speaks another major version of the ABI";
    case EMM_E_PLUGIN_INVALID:
        return "the plugin's table breaks the rules of the ABI";
    case EMM_E_PLUGIN_FAILED:
        return "the plugin failed";
    case EMM_E_PLUGIN_EXCEPTION:
        return "a C++ exception left the plugin";
    case EMM_E_REENTERED:
        return "the plugin called back into what it was being called for";
    case EMM_E_ALREADY_FREED:
        return "the memory behind the handle has been freed already";
    default:
        return status > 0 ? "success, with a notice that this version of emm does not know"
                          : "an error that this version of emm does not know";
    }
}
