"""Memory for checkpoint.py: a few calls of the driver by ctypes, and the ways to allocate, export and open."""
import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ulonglong, c_ushort, c_void_p

BLOCK = 16 << 20
PINNED, DEVICE, READ_WRITE, DESCRIPTOR = 1, 1, 3, 1  # of CUDA's enumerations
LOCK_MS = 5000


class DriverError(RuntimeError):
    pass


# The structs of cuda.h 13.0, 64 bytes each.
class LockArgs(Structure):
    _fields_ = [("timeout_ms", c_uint), ("reserved0", c_uint), ("reserved1", c_uint64 * 7)]


class RestoreArgs(Structure):
    _fields_ = [("pairs", c_void_p), ("count", c_uint), ("reserved", c_char * (52 - ctypes.sizeof(c_void_p))),
                ("reserved1", c_uint64)]


class NoArgs(Structure):  # of a checkpoint, and of an unlock
    _fields_ = [("reserved", c_uint64 * 8)]


class Location(Structure):
    _fields_ = [("kind", c_int), ("id", c_int)]


class Properties(Structure):  # CUmemAllocationProp
    _fields_ = [("kind", c_int), ("handle_types", c_int), ("location", Location), ("metadata", c_void_p),
                ("compression", c_ubyte), ("rdma", c_ubyte), ("usage", c_ushort), ("reserved", c_ubyte * 4)]


class Access(Structure):  # CUmemAccessDesc
    _fields_ = [("location", Location), ("flags", c_int)]


class IpcMemHandle(Structure):
    _fields_ = [("bytes", c_ubyte * 64)]


SIGNATURES = {
    "cuInit": [c_uint],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxSynchronize": [],
    "cuMemAlloc_v2": [POINTER(c_ulonglong), c_size_t],
    "cuMemFree_v2": [c_ulonglong],
    "cuMemAllocAsync": [POINTER(c_ulonglong), c_size_t, c_void_p],
    "cuMemFreeAsync": [c_ulonglong, c_void_p],
    "cuMemcpyHtoD_v2": [c_ulonglong, c_void_p, c_size_t],
    "cuMemcpyDtoH_v2": [c_void_p, c_ulonglong, c_size_t],
    "cuIpcGetMemHandle": [POINTER(IpcMemHandle), c_ulonglong],
    "cuIpcOpenMemHandle_v2": [POINTER(c_ulonglong), IpcMemHandle, c_uint],
    "cuMemCreate": [POINTER(c_ulonglong), c_size_t, POINTER(Properties), c_ulonglong],
    "cuMemRelease": [c_ulonglong],
    "cuMemAddressReserve": [POINTER(c_ulonglong), c_size_t, c_size_t, c_ulonglong, c_ulonglong],
    "cuMemAddressFree": [c_ulonglong, c_size_t],
    "cuMemMap": [c_ulonglong, c_size_t, c_size_t, c_ulonglong, c_ulonglong],
    "cuMemUnmap": [c_ulonglong, c_size_t],
    "cuMemSetAccess": [c_ulonglong, c_size_t, POINTER(Access), c_size_t],
    "cuMemExportToShareableHandle": [c_void_p, c_ulonglong, c_int, c_ulonglong],
    "cuMemImportFromShareableHandle": [POINTER(c_ulonglong), c_void_p, c_int],
    "cuGetErrorName": [c_int, POINTER(ctypes.c_char_p)],
    "cuCheckpointProcessGetState": [c_int, POINTER(c_int)],
    "cuCheckpointProcessLock": [c_int, POINTER(LockArgs)],
    "cuCheckpointProcessCheckpoint": [c_int, POINTER(NoArgs)],
    "cuCheckpointProcessRestore": [c_int, POINTER(RestoreArgs)],
    "cuCheckpointProcessUnlock": [c_int, POINTER(NoArgs)],
}
_library = []


def library():
    if not _library:
        _library.append(ctypes.CDLL("libcuda.so.1"))
    return _library[0]


def name_of(result):
    text = ctypes.c_char_p()
    library().cuGetErrorName(result, byref(text))
    return text.value.decode() if text.value else f"error {result}"


def driver(name, *arguments):
    """Calls the driver; raises what it answers, and that it has no such function."""
    try:
        function = getattr(library(), name)
    except AttributeError:
        raise DriverError(f"the driver has no {name}") from None
    function.argtypes = SIGNATURES[name]
    if result := function(*arguments):
        raise DriverError(f"{name_of(result)}: {name}")


def missing():
    """The thing that this machine lacks; empty: nothing."""
    count = c_int()
    try:
        driver("cuInit", 0)
        driver("cuDeviceGetCount", byref(count))
    except (OSError, DriverError) as error:
        return f"there is no GPU: {error}"
    return "" if count.value else "there is no GPU"


def checkpoint_call(step, pid):
    arguments = {"lock": LockArgs(timeout_ms=LOCK_MS), "checkpoint": NoArgs(), "restore": RestoreArgs(), "unlock": NoArgs()}
    driver(f"cuCheckpointProcess{step.title()}", pid, byref(arguments[step]))


def state(pid):
    number = c_int(-1)
    driver("cuCheckpointProcessGetState", pid, byref(number))
    return number.value


def blocks_of(size):
    """The pattern, a block at a time: the same in every process, and no block as another."""
    base = bytes((i * 73 + (i >> 8)) & 0xff for i in range(1 << 16)) * (BLOCK >> 16)
    for at in range(0, size, BLOCK):
        yield at, (at.to_bytes(8, "little") + base)[:min(BLOCK, size - at)]


def write_pattern(ptr, size):
    for at, block in blocks_of(size):
        driver("cuMemcpyHtoD_v2", ptr + at, block, len(block))
    driver("cuCtxSynchronize")


def holds_pattern(ptr, size):
    buffer = ctypes.create_string_buffer(BLOCK)
    for at, block in blocks_of(size):
        driver("cuMemcpyDtoH_v2", buffer, ptr + at, len(block))
        if buffer.raw[:len(block)] != block:
            return False
    return True


class Plain:
    """cuMemAlloc, and the driver's own handles."""

    def __init__(self):
        context = c_void_p()
        driver("cuInit", 0)
        driver("cuDevicePrimaryCtxRetain", byref(context), 0)
        driver("cuCtxSetCurrent", context)
        self.ptr = None

    def allocate(self, size):
        ptr = c_ulonglong()
        driver("cuMemAlloc_v2", byref(ptr), size)
        self.ptr = self.ptr or ptr.value
        return ptr.value

    def free(self, ptr, _):
        driver("cuMemFree_v2", ptr)

    def export(self):
        """The input of another process: words, and descriptors that it inherits."""
        handle = IpcMemHandle()
        driver("cuIpcGetMemHandle", byref(handle), self.ptr)
        return bytes(handle).hex(), ()

    def open(self, words, _):
        ptr = c_ulonglong()
        driver("cuIpcOpenMemHandle_v2", byref(ptr), IpcMemHandle.from_buffer_copy(bytes.fromhex(words)), 1)
        return ptr.value

    def end_export(self):
        pass  # the handle is a value


class Pooled(Plain):
    """cuMemAllocAsync, from the device's default pool."""

    def allocate(self, size):
        ptr = c_ulonglong()
        driver("cuMemAllocAsync", byref(ptr), size, None)
        driver("cuCtxSynchronize")
        return ptr.value

    def free(self, ptr, _):
        driver("cuMemFreeAsync", ptr, None)
        driver("cuCtxSynchronize")


class Mapped(Plain):
    """cuMemCreate behind an address; `shareable` by a descriptor. Sizes are multiples of 2 MiB."""

    def __init__(self, shareable=False):
        super().__init__()
        self.handles = DESCRIPTOR if shareable else 0
        self.held = {}

    def map(self, handle, size):
        ptr = c_ulonglong()
        driver("cuMemAddressReserve", byref(ptr), size, 0, 0, 0)
        driver("cuMemMap", ptr.value, size, 0, handle, 0)
        driver("cuMemSetAccess", ptr.value, size, byref(Access(Location(DEVICE, 0), READ_WRITE)), 1)
        self.held[ptr.value] = handle
        return ptr.value

    def allocate(self, size):
        handle = c_ulonglong()
        properties = Properties(kind=PINNED, handle_types=self.handles, location=Location(DEVICE, 0))
        driver("cuMemCreate", byref(handle), size, byref(properties), 0)
        return self.map(handle.value, size)

    def free(self, ptr, size):
        driver("cuMemUnmap", ptr, size)
        driver("cuMemAddressFree", ptr, size)
        driver("cuMemRelease", self.held.pop(ptr))

    def export(self):
        descriptor = c_int(-1)
        driver("cuMemExportToShareableHandle", byref(descriptor), next(iter(self.held.values())), DESCRIPTOR, 0)
        os.set_inheritable(descriptor.value, True)
        return str(descriptor.value), (descriptor.value,)

    def open(self, words, size):
        handle = c_ulonglong()
        driver("cuMemImportFromShareableHandle", byref(handle), int(words), DESCRIPTOR)
        os.close(int(words))
        return self.map(handle.value, size)


class Emm:
    """The plugin that EMM_PLUGIN names, by emm's C interface."""

    def __init__(self):
        import emm
        self.emm, self.context, self.exported = emm, emm.context_for_device(0), None
        info = emm.ContextInfo()
        emm.check(emm.lib.emm_context_get_info(self.context, byref(info)))
        driver("cuCtxSetCurrent", info.cuda_context)
        self.first = None

    def allocate(self, size):
        ptr = c_ulonglong()
        self.emm.check(self.emm.lib.emm_memalloc(self.context, size, self.emm.UNORDERED, byref(ptr)))
        self.first = self.first or (ptr.value, size)
        return ptr.value

    def free(self, ptr, size):
        self.emm.check(self.emm.lib.emm_memfree(self.context, ptr, size, self.emm.UNORDERED))

    def export(self):
        self.exported = self.emm.IpcHandle()
        self.emm.check(self.emm.lib.emm_get_ipc_handle(self.context, *self.first, byref(self.exported)))
        return bytes(self.exported).hex(), ()

    def end_export(self):
        self.emm.check(self.emm.lib.emm_release_ipc_handle(self.context, byref(self.exported)))

    def open(self, words, _):
        handle, opened = self.emm.IpcHandle.from_buffer_copy(bytes.fromhex(words)), c_void_p()
        self.emm.check(self.emm.lib.emm_memory_open_ipc(self.context, byref(handle), byref(opened)))
        info = self.emm.MemoryInfo()
        self.emm.check(self.emm.lib.emm_memory_get_info(opened, byref(info)))
        return info.ptr

    def pause(self):
        self.emm.pause()

    def resume(self):
        self.emm.resume()


def make(way):
    """The memory of that way, in a context on device 0 that is made current."""
    known = {"cuMemAlloc": Plain, "cuMemAllocAsync": Pooled, "cuMemCreate": Mapped,
             "cuMemCreate, shareable": lambda: Mapped(shareable=True)}
    return known.get(way, Emm)()
