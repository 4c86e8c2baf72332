"""emm/emm.h, emm/array.h and emm/status.h for ctypes: structs, and each function's prototype."""
from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16,
    c_uint32, c_uint64, c_ulonglong, c_void_p, sizeof,
)

from . import _library
from ._constants import *  # noqa: F403
from ._constants import EMM_STREAM_UNORDERED

UNORDERED = EMM_STREAM_UNORDERED


class Sized(Structure):
    """A struct that begins with its own size, which the caller fills in."""

    def __init__(self, **values):
        super().__init__(struct_size=sizeof(self), **values)

    def __repr__(self):
        told = [f"{name}={getattr(self, name)!r}" for name, *_ in self._fields_
                if name not in ("struct_size", "reserved")]
        return f"{type(self).__name__}({', '.join(told)})"


class LastError(Structure):
    _fields_ = [("struct_size", c_uint32), ("code", c_int32), ("driver_result", c_int32),
                ("reserved", c_uint32), ("text", c_char_p), ("stage", c_char_p),
                ("path", c_char_p), ("expected", c_char_p), ("got", c_char_p), ("hint", c_char_p),
                ("tried", POINTER(c_char_p)), ("json", c_char_p), ("report", c_char_p)]


class Option(Structure):
    _fields_ = [("name", c_char_p), ("default_value", c_char_p), ("help", c_char_p),
                ("kind", c_uint32), ("reserved", c_uint32)]


class PluginInfo(Sized):
    pass


PluginInfo._fields_ = [
    ("struct_size", c_uint32), ("abi_major", c_uint32), ("abi_minor", c_uint32), ("reserved", c_uint32),
    ("name", c_char_p), ("version", c_char_p), ("description", c_char_p), ("path", c_char_p),
    ("build_id", c_char_p), ("spec", c_char_p), ("selected_by", c_char_p), ("capabilities", c_uint64),
    ("options", POINTER(Option)), ("option_texts", POINTER(c_char_p)), ("layers", POINTER(POINTER(PluginInfo)))]


class DriverInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("cuda_version", c_int32), ("simulated", c_uint32),
                ("device_count", c_uint32), ("path", c_char_p)]


class DriverUsage(Sized):
    _fields_ = [("struct_size", c_uint32), ("metered", c_uint32), ("device_bytes", c_uint64),
                ("peak_device_bytes", c_uint64), ("host_bytes", c_uint64),
                ("peak_host_bytes", c_uint64)]


class MemoryRow(Structure):
    _fields_ = [("live", c_uint64), ("bytes", c_uint64), ("peak_bytes", c_uint64), ("made", c_uint64)]


class DeviceAccount(Sized):
    _fields_ = [("struct_size", c_uint32), ("is_counted", c_uint32), ("limit_bytes", c_uint64),
                ("used_bytes", c_uint64), ("managers_bytes", c_uint64), ("managers", MemoryRow * 16),
                ("program", MemoryRow * 16)]


class DriverMemory(Sized):
    _fields_ = [("struct_size", c_uint32), ("device", c_int32), ("kind", c_uint32), ("reserved", c_uint32),
                ("bytes", c_uint64), ("pool", c_void_p)]


class ContextInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("device", c_int32), ("cuda_context", c_void_p),
                ("context_id", c_uint64), ("context", c_void_p), ("primary", c_uint32),
                ("reserved", c_uint32), ("device_uuid", c_uint8 * 16), ("pool", c_char_p),
                ("group", c_void_p), ("below", c_void_p), ("below_managers", c_void_p)]


class Stats(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32)] + [
        (name, c_uint64) for name in (
            "live_bytes", "live_count", "cached_bytes", "reserved_bytes", "peak_live_bytes",
            "peak_reserved_bytes", "allocations", "frees", "failures", "pending_bytes",
            "host_live_bytes", "host_reserved_bytes", "largest_free_block", "paused_bytes",
            "spilled_bytes")]


class BlockInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("kind", c_uint32), ("base", c_ulonglong),
                ("size", c_uint64), ("device", c_int32), ("reserved", c_uint32)]


class MemoryInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("kind", c_uint32), ("state", c_uint32),
                ("flags", c_uint32), ("context", c_void_p), ("ptr", c_ulonglong),
                ("host", c_void_p), ("size", c_uint64), ("generation", c_uint64),
                ("stream", c_void_p), ("owner", c_void_p), ("parent", c_void_p)]


class IpcHandle(Structure):
    _fields_ = [("magic", c_uint32), ("version", c_uint32), ("kind", c_uint32),
                ("flags", c_uint32), ("handle", c_uint8 * 64), ("offset", c_uint64),
                ("size", c_uint64), ("exported_size", c_uint64), ("generation", c_uint64),
                ("nonce", c_uint8 * 16), ("device_uuid", c_uint8 * 16), ("pci_domain", c_uint32),
                ("pci_bus", c_uint32), ("pci_device", c_uint32), ("checksum", c_uint32)]


class Event(Structure):
    _fields_ = [("struct_size", c_uint32), ("memory", c_uint32), ("context", c_void_p),
                ("old_ptr", c_ulonglong), ("new_ptr", c_ulonglong), ("size", c_uint64),
                ("stream", c_void_p), ("status", c_int32), ("reserved", c_uint32), ("tag", c_char_p)]


EventHook = CFUNCTYPE(None, POINTER(Event), c_void_p)


class EventHookInfo(Structure):
    _fields_ = [("hook", EventHook), ("user_data", c_void_p)]


class Counters(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32)] + [
        (name, c_uint64) for name in (
            "late_frees", "pending_count", "pending_bytes", "flushes", "failed_deferred",
            "dropped", "memory_retries")]


class Frame(Structure):
    _fields_ = [("module", c_char_p), ("offset", c_uint64), ("function", c_char_p),
                ("line", c_uint32), ("reserved", c_uint32)]


class Allocation(Structure):
    _fields_ = [("struct_size", c_uint32), ("memory", c_uint32), ("ptr", c_ulonglong),
                ("size", c_uint64), ("stream", c_void_p), ("age_ns", c_uint64),
                ("thread", c_uint32), ("sample", c_uint32), ("module", c_char_p),
                ("offset", c_uint64), ("frame_count", c_uint32), ("frame_size", c_uint32),
                ("frames", POINTER(Frame)), ("tag", c_char_p)]


class ArrayField(Structure):
    pass


ArrayField._fields_ = [("name", c_char_p), ("typestr", c_char_p), ("fields", POINTER(ArrayField)),
                       ("field_count", c_uint32), ("ndim", c_uint32), ("shape", POINTER(c_int64))]


class ArrayInfo(Sized):
    """emm_array."""


ArrayInfo._fields_ = [("struct_size", c_uint32), ("version", c_uint32), ("data", c_ulonglong),
                      ("read_only", c_uint32), ("ndim", c_uint32), ("shape", POINTER(c_int64)),
                      ("strides", POINTER(c_int64)), ("typestr", c_char_p),
                      ("descr", POINTER(ArrayField)), ("descr_count", c_uint32),
                      ("reserved", c_uint32), ("mask", POINTER(ArrayInfo)), ("stream", c_void_p)]


class ArrayLayout(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("itemsize", c_uint64),
                ("count", c_uint64), ("size", c_uint64), ("offset", c_uint64)]


class DLPackType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


AllocationVisitor = CFUNCTYPE(c_int, POINTER(Allocation), c_void_p)
Finalizer = CFUNCTYPE(None, c_void_p)
PluginVisitor = CFUNCTYPE(c_int, c_char_p, c_char_p, c_void_p)
ContextVisitor = CFUNCTYPE(c_int, c_void_p, c_void_p)
DriverCountVisitor = CFUNCTYPE(c_int, c_char_p, c_uint64, c_void_p)
DriverCallVisitor = CFUNCTYPE(None, c_char_p, c_uint64, c_void_p)
PressureCallback = CFUNCTYPE(c_size_t, c_void_p, c_size_t, c_void_p)

# Contexts, memory handles and streams are opaque. Outputs and callbacks are declared as void *, so that byref of any
# type, an instance of the callback's type, and NULL can be passed.
CONTEXT = MEMORY = STREAM = OUT = HOST = CALLBACK = c_void_p
PTR = c_ulonglong

# By their arguments; the result is a status unless RESULTS says otherwise.
SIGNATURES = [
    ([], "emm_version emm_last_error emm_shutdown emm_tag_end"),
    ([c_int32], "emm_status_text emm_status_name emm_set_log_level"),
    ([c_char_p], "emm_set_plugin emm_event_log_recover emm_tag_begin"),
    ([CALLBACK, c_char_p], "emm_set_plugin_entry"),
    ([OUT],
     "emm_get_plugin emm_get_driver emm_get_driver_usage emm_context_current emm_ipc_is_name "
     "emm_get_counters emm_array_validate"),
    ([c_char_p, OUT], "emm_probe_plugin"),
    ([CALLBACK, c_void_p],
     "emm_foreach_plugin emm_foreach_driver_count emm_foreach_driver_call emm_foreach_context "
     "emm_set_pressure_callback"),
    ([c_char_p, c_int32], "emm_driver_entry"),
    ([c_int32, OUT], "emm_get_device_account emm_context_for_device emm_get_device_total emm_exchange_log_level"),
    ([OUT, OUT],
     "emm_take_driver_memory emm_ipc_handle_to_name emm_ipc_name_to_handle emm_ipc_name_of "
     "emm_ipc_handle_from"),
    ([c_uint64, c_void_p], "emm_keep_driver_memory"),
    ([c_uint64], "emm_give_driver_memory emm_untrack_driver_memory"),
    ([c_void_p, OUT], "emm_context_from"),
    ([CONTEXT, c_char_p, c_char_p, OUT], "emm_context_named"),
    ([CONTEXT, OUT], "emm_context_get_info emm_get_stats emm_release_ipc_handle"),
    ([CONTEXT], "emm_context_retire emm_context_reset emm_context_reset_peaks emm_defer_cleanup_begin emm_defer_cleanup_end"),
    ([CONTEXT, CALLBACK, c_void_p], "emm_foreach_allocation"),
    ([CONTEXT, c_uint32, OUT], "emm_context_pause"),
    ([CONTEXT, c_uint32], "emm_context_resume"),
    ([CONTEXT, c_uint64, c_size_t, c_void_p], "emm_context_read_paused"),
    ([CONTEXT, c_char_p, c_char_p], "emm_context_set_option"),
    ([c_int32, c_uint64, OUT], "emm_track_driver_memory"),
    ([CONTEXT, c_size_t, STREAM, OUT], "emm_memalloc emm_memory_alloc"),
    ([CONTEXT, PTR, c_size_t, STREAM], "emm_memfree emm_memfreemanaged emm_record_use"),
    ([CONTEXT, c_size_t, c_uint32, OUT, OUT], "emm_memhostalloc"),
    ([CONTEXT, HOST, c_size_t, c_uint32, STREAM], "emm_memhostfree"),
    ([CONTEXT, HOST, c_size_t, c_uint32, OUT], "emm_mempin"),
    ([CONTEXT, HOST, c_size_t], "emm_memunpin"),
    ([CONTEXT, c_size_t, c_uint32, OUT], "emm_memallocmanaged emm_memory_hostalloc emm_memory_managed"),
    ([CONTEXT, OUT, OUT], "emm_get_memory_info emm_memory_open_ipc"),
    ([CONTEXT, c_size_t, OUT], "emm_trim"),
    ([CONTEXT, PTR, OUT], "emm_query"),
    ([CONTEXT, c_int32, c_uint32], "emm_set_peer_access"),
    ([CONTEXT, HOST, c_size_t, c_uint32, c_void_p, CALLBACK, OUT], "emm_memory_pin"),
    ([CONTEXT, PTR, HOST, c_size_t, c_void_p, CALLBACK, OUT], "emm_memory_wrap"),
    ([MEMORY, c_size_t, c_size_t, OUT], "emm_memory_view"),
    ([MEMORY], "emm_memory_retain emm_memory_release emm_memory_free"),
    ([MEMORY, STREAM], "emm_memory_set_stream"),
    ([MEMORY, OUT], "emm_memory_get_info emm_memory_export"),
    ([CONTEXT, PTR, c_size_t, OUT], "emm_get_ipc_handle"),
    ([CONTEXT, STREAM], "emm_stream_register emm_stream_retire emm_capture_begin emm_capture_end"),
    ([CALLBACK, c_void_p, OUT], "emm_exchange_pressure_callback emm_set_event_hook"),
    ([c_int32, CALLBACK, c_void_p], "emm_set_log_callback"),
    ([c_int32, CALLBACK, c_void_p, OUT], "emm_exchange_log_callback"),
    ([c_int32, c_char_p], "emm_log"),
    ([OUT, OUT, OUT], "emm_array_get_layout"),
    ([CONTEXT, OUT, STREAM, c_uint32, c_void_p, CALLBACK, OUT, OUT], "emm_array_import"),
    ([MEMORY, c_uint64, STREAM, OUT], "emm_array_export"),
    ([MEMORY, c_uint64, OUT, OUT, OUT], "emm_dlpack_export emm_dlpack_export_unversioned"),
]
FUNCTIONS = {name: arguments for arguments, names in SIGNATURES for name in names.split()}
RESULTS = {"emm_version": c_char_p, "emm_status_text": c_char_p, "emm_status_name": c_char_p,
           "emm_driver_entry": c_void_p, "emm_last_error": POINTER(LastError)}


def declare(library):
    for name, arguments in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = RESULTS.get(name, c_int32)
    return library


lib = declare(_library.load())
library_path = _library.path_of(lib.emm_version)
