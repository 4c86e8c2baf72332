"""emm/plugin.h for ctypes: the host's services, and the table that a plugin is."""
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_size_t, c_uint32, c_uint64
from ctypes import c_ulonglong, c_void_p

from ._api import BlockInfo, ContextInfo, IpcHandle, Option, Stats

Log = CFUNCTYPE(None, c_int32, c_char_p)
Fail = CFUNCTYPE(c_int32, c_int32, c_int32, c_char_p)


class Host(Structure):
    _fields_ = [("struct_size", c_uint32), ("abi_major", c_uint32), ("abi_minor", c_uint32),
                ("reserved", c_uint32), ("version", c_char_p), ("log", Log), ("fail", Fail),
                ("driver", c_void_p), ("defer", c_void_p), ("pressure", c_void_p),
                ("serve_ipc", c_void_p), ("withdraw_ipc", c_void_p)]


# Pointers are integers, also when they are 0: a c_void_p would be None.
SIZE, PTR, FLAGS, HOST, STREAM = c_size_t, c_ulonglong, c_uint32, c_size_t, c_size_t
# The types of a manager method's arguments after self, and of its results.
SLOTS = {
    "initialize": ([], []),
    "memalloc": ([SIZE, STREAM], [PTR]),
    "memfree": ([PTR, SIZE, STREAM], []),
    "memhostalloc": ([SIZE, FLAGS], [HOST, PTR]),
    "memhostfree": ([HOST, SIZE, FLAGS, STREAM], []),
    "mempin": ([HOST, SIZE, FLAGS], [PTR]),
    "memunpin": ([HOST, SIZE], []),
    "memallocmanaged": ([SIZE, FLAGS], [PTR]),
    "memfreemanaged": ([PTR, SIZE, STREAM], []),
    "get_memory_info": ([], [SIZE, SIZE]),
    "get_ipc_handle": ([PTR, SIZE], [IpcHandle]),
    "release_ipc_handle": ([POINTER(IpcHandle)], []),
    "reset": ([], []),
    "defer_cleanup": ([FLAGS], []),
    "trim": ([SIZE], [SIZE]),
    "query": ([PTR], [BlockInfo]),
    "record_use": ([PTR, SIZE, STREAM], []),
    "stream_notice": ([STREAM, FLAGS], []),
    "set_access": ([c_int32, FLAGS], []),
    "get_stats": ([], [Stats]),
}
TYPES = {name: CFUNCTYPE(c_int32, c_void_p, *inputs, *map(POINTER, outputs))
         for name, (inputs, outputs) in SLOTS.items()}
Create = CFUNCTYPE(c_int32, POINTER(Host), POINTER(ContextInfo), POINTER(c_char_p),
                   POINTER(c_void_p))
Destroy = CFUNCTYPE(c_int32, c_void_p)


class Plugin(Structure):
    _fields_ = [("struct_size", c_uint32), ("interface_version", c_uint32),
                ("interface_minor", c_uint32), ("reserved", c_uint32), ("name", c_char_p),
                ("version", c_char_p), ("description", c_char_p), ("capabilities", c_uint64),
                ("options", POINTER(Option)), ("create", Create), ("destroy", Destroy),
                *TYPES.items()]


Entry = CFUNCTYPE(c_void_p, POINTER(Host))
