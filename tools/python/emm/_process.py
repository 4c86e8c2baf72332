"""What a Python program asks of emm as a whole: plugin, driver, contexts, figures."""
import os
from ctypes import byref, c_size_t, c_void_p

from ._api import DeviceAccount, DriverInfo, PluginInfo, Stats, lib
from ._error import check


def set_plugin(spec):
    """Chooses the plugin; True unless EMM_PLUGIN outranks the call."""
    return check(lib.emm_set_plugin(os.fsencode(spec))) == 0


def made_by(function, *arguments, kind=c_void_p):
    """Calls a function of the C interface; gives what its last argument then holds."""
    out = kind()
    check(function(*arguments, byref(out)))
    return out


def plugin_info():
    """The plugin in force, which this loads if need be."""
    return made_by(lib.emm_get_plugin, kind=PluginInfo)


def driver_info():
    return made_by(lib.emm_get_driver, kind=DriverInfo)


def current_context():
    """The emm_context of the thread's current CUDA context, as an integer."""
    return made_by(lib.emm_context_current).value


def context_for_device(device):
    """The emm_context of a device's primary context, which is brought to life."""
    return made_by(lib.emm_context_for_device, device).value


def context_named(context, name, options=None):
    """The pool `name` of the context's CUDA context, made on first use: a further emm_context with a
    manager of its own. `options` ("max=2GiB") replace those of the plugin in force."""
    return made_by(lib.emm_context_named, context, os.fsencode(name),
                   None if options is None else os.fsencode(options)).value


def memory_info(context):
    """Free and total bytes, as the context's manager sees them."""
    free, total = c_size_t(), c_size_t()
    check(lib.emm_get_memory_info(context, byref(free), byref(total)))
    return free.value, total.value


def stats(context):
    return made_by(lib.emm_get_stats, context, kind=Stats)


def device_account(device):
    """What this process holds of a device, an ordinal, and the device's bound: rows by EMM_MEMORY_*."""
    return made_by(lib.emm_get_device_account, device, kind=DeviceAccount)


def shutdown():
    check(lib.emm_shutdown())
