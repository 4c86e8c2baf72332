"""libemm-bridge: beside libemm, or where the same build has made it."""
import ctypes
import pathlib

from ._api import library_path

NAME = "libemm-bridge.so.1"


def find():
    folder = pathlib.Path(library_path).parent
    for path in (folder / NAME, folder.parent / "tools/python/bridge" / NAME):
        if path.is_file():
            return str(path)
    raise ImportError(f"{NAME} is not beside {library_path}")


bridge_path = find()
bridge = ctypes.CDLL(bridge_path)
bridge.emm_numpy_handler.argtypes = [ctypes.c_int]
bridge.emm_numpy_handler.restype = ctypes.c_void_p
bridge.emm_numpy_capsule_name.argtypes = []
bridge.emm_numpy_capsule_name.restype = ctypes.c_void_p
bridge.emm_cupy_set_current_stream.argtypes = [ctypes.c_void_p]
bridge.emm_cupy_set_current_stream.restype = None
bridge.emm_torch_pool.argtypes = [ctypes.c_char_p] * 2 + [ctypes.c_void_p] * 2
bridge.emm_torch_pool.restype = ctypes.c_int32
for _serve in bridge.emm_rmm_serve, bridge.emm_rmm_serve_pinned:
    _serve.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 2
    _serve.restype = ctypes.c_int32


def address(name, library=bridge):
    """The address of a function, as a number."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


_CURRENT = "PyThreadState_GetUnchecked"  # since Python 3.13
_PYTHON = ("PyCapsule_GetName", "PyCapsule_GetPointer", "PyErr_Fetch", "PyErr_Restore", "PyGILState_GetThisThreadState",
           _CURRENT if hasattr(ctypes.pythonapi, _CURRENT) else "_PyThreadState_UncheckedGet",
           "PyEval_SaveThread", "PyEval_RestoreThread")
bridge.emm_python_set_functions((ctypes.c_void_p * len(_PYTHON))(*(address(name, ctypes.pythonapi) for name in _PYTHON)))
