"""Arrays in device memory, as the CUDA Array Interface and DLPack describe them."""
import functools
import itertools
import weakref
from ctypes import CFUNCTYPE, byref, c_int32, c_int64, c_void_p, py_object, pythonapi

from ._api import ArrayInfo, ArrayLayout, Finalizer, lib
from ._constants import (
    EMM_ARRAY_NO_STREAM, EMM_ARRAY_STREAM_LEGACY, EMM_E_INVALID_VALUE, EMM_E_NOT_SUPPORTED, EMM_STREAM_UNORDERED,
)
from ._error import Error, check

new_capsule = pythonapi.PyCapsule_New
new_capsule.argtypes, new_capsule.restype = [c_void_p, c_void_p, c_void_p], py_object
_owners, _keys = {}, itertools.count(1)  # owners that imported memory keeps


@functools.lru_cache(None)
def _capsule_end():
    """The destructor of capsules. It is in C, because a capsule may end while an exception is pending."""
    from ._bridge import address
    return address("emm_dlpack_end_capsule")


@Finalizer
def _let_go(key):
    _owners.pop(key, None)


class _Tensor:
    """A struct of DLPack: the function that makes it, its capsule's name, and the places of its members."""

    def __init__(self, export, name, deleter, device):
        self.export, self.name, self.deleter, self.device = export, name, deleter, device

    def make(self, array):
        made = c_void_p()
        try:
            check(self.export(array._memory, array._offset, byref(array._info), None, byref(made)))
        except Error as error:
            raise BufferError(str(error)) from error
        return made.value

    def delete(self, tensor):
        CFUNCTYPE(None, c_void_p)(c_void_p.from_address(tensor + self.deleter).value)(tensor)


_VERSIONED = _Tensor(lib.emm_dlpack_export, b"dltensor_versioned", 16, 40)
_UNVERSIONED = _Tensor(lib.emm_dlpack_export_unversioned, b"dltensor", 56, 8)


def _describe(shape, typestr, strides=None, stream=None, **values):
    info = ArrayInfo(version=3, ndim=len(shape), shape=(c_int64 * len(shape))(*shape),
                     typestr=typestr.encode(),
                     stream=EMM_ARRAY_NO_STREAM if stream is None else stream, **values)
    if strides is not None:
        if len(strides) != len(shape):
            raise Error(EMM_E_INVALID_VALUE, f"strides: expected {len(shape)} numbers, as in the shape, found {len(strides)}")
        info.strides = (c_int64 * len(strides))(*strides)
    return info


class Array:
    """A C-contiguous array in new device memory of `context`, not set to anything.

    Libraries that read __cuda_array_interface__ or call from_dlpack take it as it is. `stream` is
    where it is allocated, used and freed; the data is ready there. What others hold keeps the
    memory when this object is gone.
    """

    def __init__(self, context, shape, typestr="<f4", stream=EMM_STREAM_UNORDERED):
        info = _describe(shape, typestr, data=0 if 0 in shape else 1)
        layout, memory = ArrayLayout(), c_void_p()
        check(lib.emm_array_get_layout(byref(info), byref(layout), None))
        check(lib.emm_memory_alloc(context, layout.size, stream, byref(memory)))
        self._take(context, memory, info, 0, stream)

    @classmethod
    def of(cls, context, producer, stream=EMM_STREAM_UNORDERED):
        """The array of an object with a __cuda_array_interface__; the array keeps the object. Later work on
        `stream` waits for the producer's work; without a stream, this function waits."""
        interface = producer.__cuda_array_interface__
        if interface.get("mask") is not None:
            raise Error(EMM_E_NOT_SUPPORTED, "expected an array without a mask: import it by itself")
        data, read_only = interface["data"]
        info = _describe(interface["shape"], interface["typestr"], interface.get("strides"),
                         interface.get("stream"), data=data, read_only=read_only)
        info.version = interface["version"]
        memory, layout, key = c_void_p(), ArrayLayout(), next(_keys)
        _owners[key] = producer
        try:
            check(lib.emm_array_import(context, byref(info), stream, 0, key, _let_go, byref(memory),
                                       byref(layout)))
        except BaseException:
            _let_go(key)
            raise
        array = cls.__new__(cls)
        info.version = 3
        array._take(context, memory, info, layout.offset, stream)
        return array

    def _take(self, context, memory, info, offset, stream):
        self._context, self._memory, self._info, self._offset = context, memory, info, offset
        weakref.finalize(self, lib.emm_memory_release, memory)
        check(lib.emm_array_export(memory, offset, stream, byref(info)))

    @property
    def memory(self):
        """The emm_memory, as an integer."""
        return self._memory.value

    @property
    def shape(self):
        return tuple(self._info.shape[:self._info.ndim])

    @property
    def __cuda_array_interface__(self):
        info = self._info
        return {"shape": self.shape, "typestr": info.typestr.decode(), "version": info.version,
                "data": (info.data, bool(info.read_only)),
                "strides": tuple(info.strides[:info.ndim]) if info.strides else None,
                "stream": None if info.stream == EMM_ARRAY_NO_STREAM else info.stream}

    def __dlpack_device__(self):
        tensor = _VERSIONED.make(self)
        try:
            return tuple((c_int32 * 2).from_address(tensor + _VERSIONED.device))
        finally:
            _VERSIONED.delete(tensor)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or (dl_device and dl_device != self.__dlpack_device__()):
            raise BufferError("emm hands the array out where it lies, and copies nothing")
        if stream == 0:
            raise BufferError("stream: expected 1 or 2 for a default stream, found 0")
        kind = _VERSIONED if max_version and max_version[0] >= 1 else _UNVERSIONED
        if stream != -1:
            self._order_behind(EMM_ARRAY_STREAM_LEGACY if stream is None else stream)
        return new_capsule(kind.make(self), kind.name, _capsule_end())

    def _order_behind(self, stream):
        """Later work on `stream` waits for the work that the array's stream has now."""
        memory = c_void_p()
        check(lib.emm_array_import(self._context, byref(self._info), stream, 0, None, None,
                                   byref(memory), None))
        lib.emm_memory_release(memory)
