"""The parts of emm/array.h that the tests beside this file need, over the Python package."""
import ctypes

import emm
from emm._api import ArrayField, ArrayInfo, ArrayLayout, Finalizer, lib
from emm import EMM_ARRAY_C_CONTIGUOUS as C_CONTIGUOUS
from emm import EMM_ARRAY_F_CONTIGUOUS as F_CONTIGUOUS
from emm import EMM_ARRAY_NO_STREAM as NO_STREAM
from emm import EMM_HOST_MAPPED as HOST_MAPPED
from emm import UNORDERED

Failure = emm.Error


def call(name, *arguments):
    emm.check(getattr(lib, name)(*arguments))


def context():
    return emm.context_for_device(0)


def int64s(values):
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def fields_of(descr):
    """The emm_array_field of a descr as NumPy gives it, or None for the trivial one."""
    if [name for name, *_ in descr] == [""]:
        return None
    made = (ArrayField * len(descr))()
    for field, (name, what, *shape) in zip(made, descr):
        field.name = (name[-1] if isinstance(name, tuple) else name).encode()
        if isinstance(what, list):
            field.fields, field.field_count = fields_of(what), len(what)
        else:
            field.typestr = what.encode()
        if shape:
            field.ndim, field.shape = len(shape[0]), int64s(shape[0])
    return made


def array_of(interface):
    """The emm_array of an __array_interface__ or __cuda_array_interface__."""
    shape, strides = interface["shape"], interface.get("strides")
    array = ArrayInfo(version=max(interface["version"], 2),
                  data=interface["data"][0] or 0, read_only=interface["data"][1],
                  ndim=len(shape), shape=int64s(shape), typestr=interface["typestr"].encode())
    if strides is not None:
        array.strides = int64s(strides)
    if interface.get("descr"):
        array.descr = fields_of(interface["descr"])
        array.descr_count = len(interface["descr"]) if array.descr else 0
    stream = interface.get("stream")
    array.stream = NO_STREAM if stream is None else stream
    return array


def interface_of(array):
    """The dictionary of an emm_array."""
    shape = tuple(array.shape[:array.ndim])
    return {"shape": shape, "typestr": array.typestr.decode(), "version": array.version,
            "data": (array.data, bool(array.read_only)),
            "strides": tuple(array.strides[:array.ndim]) if array.strides else None,
            "stream": None if array.stream == NO_STREAM else array.stream}


def layout_of(array):
    layout = ArrayLayout()
    strides = int64s([0] * array.ndim)
    call("emm_array_get_layout", ctypes.byref(array), ctypes.byref(layout), strides)
    return layout, tuple(strides[:array.ndim])


class Memory:
    """A counted reference; it is given back when this object goes."""

    def __init__(self, function, *arguments):
        self.handle = ctypes.c_void_p()
        call(function, *arguments, ctypes.byref(self.handle))

    def __del__(self):
        lib.emm_memory_release(self.handle)

    @property
    def info(self):
        info = emm.MemoryInfo()
        call("emm_memory_get_info", self.handle, ctypes.byref(info))
        return info


def described(typestr, shape, strides=None, read_only=False, version=3):
    return array_of({"shape": shape, "typestr": typestr, "strides": strides, "version": version,
                     "data": (0, read_only)})


class Shared:
    """The input of a DLPack consumer: a tensor in some memory."""
    names = {True: b"dltensor_versioned", False: b"dltensor"}

    def __init__(self, memory, array, device, offset=0):
        self.memory, self.array, self.device, self.offset = memory, array, device, offset

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        versioned = max_version is not None and max_version[0] >= 1
        tensor = ctypes.c_void_p()
        call("emm_dlpack_export" if versioned else "emm_dlpack_export_unversioned",
             self.memory.handle, ctypes.c_uint64(self.offset), ctypes.byref(self.array), None,
             ctypes.byref(tensor))
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(tensor, self.names[versioned], None)
