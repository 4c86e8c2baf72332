"""emm for Python: the C API of libemm by ctypes, and bridges for Numba, CuPy, PyTorch, NumPy
and RMM.

`lib` is libemm with every function of emm/emm.h and emm/array.h declared; the functions and
constants keep their C names. `check` turns a status into an exception. Importing this loads libemm and touches no CUDA.
"""
from ._api import (
    UNORDERED, ContextInfo, Counters, DeviceAccount, DriverInfo, IpcHandle, MemoryInfo, PluginInfo,
    Stats, lib, library_path,
)
from ._array import Array
from ._constants import *  # noqa: F403
from ._constants import __all__ as _constants
from ._error import Error, OutOfMemoryError, check
from ._process import (
    context_for_device, context_named, current_context, device_account, driver_info, memory_info, pause,
    plugin_info, read_paused, reset_peaks, resume, set_option, set_plugin, shutdown, stats, tag,
)
from ._register import register

__version__ = lib.emm_version().decode()

__all__ = [
    *_constants, "UNORDERED", "Array", "ContextInfo", "Counters", "DeviceAccount", "DriverInfo", "Error",
    "IpcHandle", "MemoryInfo", "OutOfMemoryError", "PluginInfo", "Stats", "check", "context_for_device", "context_named",
    "current_context", "device_account", "driver_info", "lib", "library_path", "memory_info", "pause", "plugin_info", "read_paused",
    "register", "reset_peaks", "resume", "set_option", "set_plugin", "shutdown", "stats", "tag",
]
