"""Functions for the whole process: plugin, driver, contexts, figures."""
import contextlib
import os
from ctypes import CFUNCTYPE, byref, c_int, c_size_t, c_void_p, cast

from ._api import ContextInfo, DeviceAccount, DriverInfo, PluginInfo, Stats, lib
from ._constants import (
    EMM_E_NOT_OWNED, EMM_OK, EMM_PAUSE_DISCARD, EMM_PAUSE_KEEP, EMM_PAUSE_UNSHARED, EMM_RESUME_KEEP_COPY, EMM_RESUME_UNDO, EMM_S_IGNORED,
)
from ._error import Error, check

ContextVisitor = CFUNCTYPE(c_int, c_void_p, c_void_p)


def set_plugin(spec):
    """Chooses the plugin. False: EMM_PLUGIN has priority."""
    return check(lib.emm_set_plugin(os.fsencode(spec))) == 0


def made_by(function, *arguments, kind=c_void_p):
    """Calls a function of the C interface, and returns the value of its last argument."""
    out = kind()
    check(function(*arguments, byref(out)))
    return out


def plugin_info():
    """The plugin in force. Loads the plugin if necessary."""
    return made_by(lib.emm_get_plugin, kind=PluginInfo)


def driver_info():
    return made_by(lib.emm_get_driver, kind=DriverInfo)


def current_context():
    """The emm_context of the thread's current CUDA context, as an integer."""
    return made_by(lib.emm_context_current).value


def context_for_device(device):
    """The emm_context of a device's primary context. Creates the primary context if necessary."""
    return made_by(lib.emm_context_for_device, device).value


def context_named(context, name, options=None):
    """The pool `name` of the context's CUDA context, made on first use: a further emm_context with a
    manager of its own. `options` ("max=2GiB") replace those of the plugin in force."""
    return made_by(lib.emm_context_named, context, os.fsencode(name),
                   None if options is None else os.fsencode(options)).value


def pause(name=None, *, discard=False, unshared=False):
    """Returns the device memory of the pool `name` to the driver, in each CUDA context that has one;
    without a name, that of all pools. Addresses stay: tensors and captured graphs are good again after
    resume(name), and no work may use them before. The content is kept in host memory, or with
    `discard` is undefined afterwards. `unshared` refuses memory that other processes may have open.
    Tells how many bytes went back. If one context refuses, what this call has paused is resumed."""
    return pause_all([(name, discard)], unshared)


def pause_all(wanted, unshared=False):
    """pause() of several pools in this order: names, each with `discard`. If a pool refuses, the pools that
    this call has paused are resumed; pools that were paused before stay paused."""
    paused, released = [], 0
    try:
        for name, discard in wanted:
            flags = EMM_PAUSE_DISCARD if discard else EMM_PAUSE_KEEP
            flags |= EMM_PAUSE_UNSHARED if unshared else 0
            for context in _contexts_with(name):
                more = c_size_t()
                if check(lib.emm_context_pause(context, flags, byref(more))) == EMM_OK:
                    paused.append(context)
                released += more.value
    except (Error, ValueError):  # refused, or there is no such pool
        for context in paused:
            lib.emm_context_resume(context, EMM_RESUME_UNDO)
        raise
    return released


def resume(name=None, *, keep_copy=False):
    """Takes memory for the addresses again, and restores kept content. With `keep_copy` the host memory of
    the copy stays, so that the next pause is quicker. OutOfMemoryError: the device has too little memory; the
    missing part stays paused, and you can call this again."""
    for context in _contexts_with(name):
        check(lib.emm_context_resume(context, EMM_RESUME_KEEP_COPY if keep_copy else 0))


def read_paused(name, ptr, size, host):
    """Copies `size` bytes that the pause of the pool `name` has kept for the device address `ptr` to the
    host address `host`. False: no pool of that name is paused, or none has kept all of these bytes."""
    for context in _contexts_with(name):
        status = lib.emm_context_read_paused(context, ptr, size, host)
        if status not in (EMM_S_IGNORED, EMM_E_NOT_OWNED):
            return check(status) == EMM_OK
    return False


def set_option(name, key, value):
    """Changes an option of the plugin in the pool `name`, in each CUDA context that has such a pool; None: in
    each CUDA context's own pool. `value` is as in a spec ("4GiB"); None: the option's default."""
    for context in _contexts_with(name):
        check(lib.emm_context_set_option(context, os.fsencode(key),
                                         None if value is None else os.fsencode(value)))


def _contexts_with(name):
    """The served pools of that name; without a name, each CUDA context's own pool."""
    wanted, found = b"" if name is None else os.fsencode(name), []

    def visit(context, _):
        if made_by(lib.emm_context_get_info, context, kind=ContextInfo).pool == wanted:
            found.append(context)
        return 0

    check(lib.emm_foreach_context(cast(ContextVisitor(visit), c_void_p), None))
    if not found:
        raise ValueError("no context is served yet" if name is None else f"there is no pool {name!r}")
    return found


def memory_info(context):
    """Free and total bytes, as the context's manager reports them."""
    free, total = c_size_t(), c_size_t()
    check(lib.emm_get_memory_info(context, byref(free), byref(total)))
    return free.value, total.value


def stats(context):
    return made_by(lib.emm_get_stats, context, kind=Stats)


def reset_peaks(context):
    """Resets the peaks in stats(context). EMM_E_NOT_SUPPORTED: the plugin cannot reset its peaks."""
    check(lib.emm_context_reset_peaks(context))


@contextlib.contextmanager
def tag(name):
    """A name for the thread's work in the block, or in the decorated function: recordings, reports and
    profiles show it with each allocation. Tags can be nested."""
    began = lib.emm_tag_begin(os.fsencode(name)) >= EMM_OK  # not in a forked child
    try:
        yield
    finally:
        if began:
            lib.emm_tag_end()


def device_account(device):
    """The memory that this process holds on a device, an ordinal, and the device's limit: rows by EMM_MEMORY_*."""
    return made_by(lib.emm_get_device_account, device, kind=DeviceAccount)


def shutdown():
    check(lib.emm_shutdown())
