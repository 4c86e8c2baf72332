"""Where libemm is: EMM_LIBRARY, else the emm that this package belongs to, else the system's."""
import ctypes
import os
import pathlib

NAME = "libemm.so.1"
# Under a prefix, and in a source tree that was built in one of the usual folders.
PLACES = ("lib*", "lib/*-linux-gnu", "build/lib", "b/lib")


def candidates():
    """Files that may be this package's libemm, the likeliest first."""
    package = pathlib.Path(__file__).resolve().parent
    yield package / "native/lib" / NAME  # in a wheel
    yield package.parents[2] / NAME  # LIBDIR/emm/python/emm, where Meson installs it
    for folder in package.parents[1:6]:
        for place in PLACES:
            for found in sorted(folder.glob(f"{place}/{NAME}")):
                yield found


def find():
    """The path of libemm; the bare name if only the system's search can find it."""
    named = os.environ.get("EMM_LIBRARY")
    if named:
        return named
    return next((str(path) for path in candidates() if path.is_file()), NAME)


def load():
    path = find()
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"libemm cannot be loaded from {path}: {error}; EMM_LIBRARY may name its file"
        ) from error


def path_of(function):
    """The file that holds a loaded function."""

    class Found(ctypes.Structure):  # Dl_info
        _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p),
                    ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]

    found = Found()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(found))
    return os.path.realpath(os.fsdecode(found.path))
