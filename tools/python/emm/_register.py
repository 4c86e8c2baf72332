"""A plugin written in Python: its methods, as the table of callbacks that emm asks for.

emm calls them from any thread, as a plugin's functions are called; ctypes takes the interpreter's
lock for the length of a call. An ended interpreter cannot be called, and `emm top` may still ask
the process then. So emm shuts down before the interpreter ends.
"""
import _thread
import atexit
import itertools
import signal
import threading
import time
from ctypes import addressof, memmove, sizeof, string_at

from . import _api
from ._api import Sized, lib
from ._error import Error, check
from ._plugin_api import SLOTS, TYPES, Create, Destroy, Entry, Plugin

_registered = []  # emm keeps the callbacks as long as the process lives


class _Table:
    """The callbacks over one class of managers."""

    def __init__(self, manager, name, description, capabilities):
        self.manager = manager
        self.managers = {}
        self.keys = itertools.count(1)
        self.host = None
        self.plugin = Plugin(
            struct_size=sizeof(Plugin), interface_version=_api.EMM_PLUGIN_ABI_MAJOR, interface_minor=_api.EMM_PLUGIN_ABI_MINOR,
            name=name.encode(), description=description.encode(), capabilities=capabilities,
            create=Create(self.create), destroy=Destroy(self.destroy))
        for slot in SLOTS:
            if callable(getattr(manager, slot, None)):
                setattr(self.plugin, slot, self.callback(slot))
        self.entry = Entry(self.enter)

    def enter(self, host):
        self.host = host.contents
        return addressof(self.plugin)

    def create(self, _host, info, _option_texts, ret_manager):
        def make():
            key = next(self.keys)
            # The struct is emm's, and lives as long as this call.
            kept = _api.ContextInfo.from_buffer_copy(string_at(info, sizeof(_api.ContextInfo)))
            self.managers[key] = self.manager(kept)
            ret_manager[0] = key
        return self.guard(make)

    def destroy(self, key):
        def unmake():
            gone = self.managers.pop(key)
            getattr(gone, "destroy", lambda: None)()
        return self.guard(unmake)

    def callback(self, slot):
        inputs, outputs = SLOTS[slot]
        count = len(inputs)
        method = getattr(self.manager, slot)

        def call(key, *arguments):
            result = method(self.managers[key], *arguments[:count])
            if len(outputs) == 1:
                store(arguments[count], result)
            elif outputs:
                for place, value in zip(arguments[count:], result):
                    store(place, value)

        return TYPES[slot](lambda *arguments: self.guard(call, *arguments))

    def guard(self, function, *arguments):
        """Reports an exception to emm instead of letting it leave a callback."""
        try:
            try:
                function(*arguments)
                return _api.EMM_OK
            except BaseException as error:  # no exception may pass through C
                if isinstance(error, KeyboardInterrupt):
                    interrupt_soon()
                return self.fail(*failure(error))
        except BaseException as error:  # Ctrl-C while one was reported, or an exception whose text raises another
            if isinstance(error, KeyboardInterrupt):
                interrupt_soon()
            return self.fail(_api.EMM_E_PLUGIN_EXCEPTION, 0, "an exception that could not be reported")

    def fail(self, status, driver_result, text):
        return self.host.fail(status, driver_result, text.encode(errors="replace"))


def failure(error):
    """The status, the driver's result and the text that tell emm of an exception."""
    if isinstance(error, Error) and isinstance(error.status, int) and -1 << 31 <= error.status < 0:
        return error.status, error.driver_result, str(error)
    if isinstance(error, MemoryError):
        return _api.EMM_E_OUT_OF_MEMORY, 0, str(error)
    return _api.EMM_E_PLUGIN_EXCEPTION, 0, f"{type(error).__name__}: {error}".removesuffix(": ")


def interrupt_soon():
    """Raises KeyboardInterrupt in the main thread, once the callback that was interrupted has returned."""
    def interrupt():
        time.sleep(0.01)
        if callable(signal.getsignal(signal.SIGINT)):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    _thread.start_new_thread(interrupt, ())


def store(place, value):
    """Writes an output. A struct of a smaller size is filled up to its size."""
    if isinstance(value, Sized):
        wanted = min(place.contents.struct_size, value.struct_size)
        value.struct_size = place.contents.struct_size
        memmove(place, addressof(value), wanted)
    else:
        place[0] = value


def register(manager, name=None, description="", capabilities=_api.EMM_PLUGIN_NEEDS_CURRENT):
    """Makes a class the plugin of this process; False if EMM_PLUGIN outranks it.

    `manager(info)` makes the manager of a CUDA context, described by an emm.ContextInfo. Its
    methods are named after the slots of emm/plugin.h and take their arguments, less `self` and the
    outputs, which they return; memalloc and memfree must be there, `destroy` may be. An exception
    becomes a failure: emm.Error its own status, MemoryError out of memory. The context is current
    in each call, unless `capabilities` say otherwise. When the interpreter ends, emm.shutdown()
    destroys the managers.
    """
    table = _Table(manager, name or manager.__name__.lower(), description, capabilities)
    _registered.append(table)
    serves = check(lib.emm_set_plugin_entry(table.entry, None)) == _api.EMM_OK
    if serves:
        atexit.register(lib.emm_shutdown)
    return serves
