"""The memory that NCCL can register, and NCCL functions that PyTorch does not call."""
import ctypes
import dataclasses
import pathlib

POSIX_DESCRIPTOR, FABRIC = 1, 8  # CU_MEM_HANDLE_TYPE_*
RECOMMENDED = 1  # CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
REGISTERED = " - IPC register buffer "  # NCCL's line of a buffer that a peer may now reach


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location_type", ctypes.c_int),
                ("location_id", ctypes.c_int), ("win32", ctypes.c_void_p), ("compression", ctypes.c_ubyte),
                ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)]


@dataclasses.dataclass(frozen=True)
class Memory:
    """Physical memory behind an address."""

    handle_types: int
    rdma: bool  # a network card can reach it directly (gpuDirectRDMACapable)
    base: int
    size: int
    granularity: int  # the driver's recommendation for such memory


def lacks(mine, reference):
    """Properties of `reference`, memory from ncclMemAlloc, that `memory` lacks. NVLink multicast is not required."""
    found = []
    if reference.handle_types & POSIX_DESCRIPTOR and not mine.handle_types & POSIX_DESCRIPTOR:
        found.append("descriptor")
    if reference.handle_types & FABRIC and not mine.handle_types & FABRIC:
        found.append("fabric")
    if reference.rdma and not mine.rdma:
        found.append("rdma")
    if mine.base % mine.granularity or mine.size % mine.granularity:
        found.append("granularity")
    return found


class Driver:
    """The CUDA driver's answers about physical memory."""

    def __init__(self, library=None):
        self.library = library or ctypes.CDLL("libcuda.so.1")

    def memory(self, address):
        """None: it has no handle, as memory of cuMemAlloc."""
        handle, found, granularity = ctypes.c_ulonglong(), Properties(), ctypes.c_size_t()
        base, size = ctypes.c_ulonglong(), ctypes.c_size_t()
        if self.library.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(address)):
            return None
        for result in (self.library.cuMemGetAllocationPropertiesFromHandle(ctypes.byref(found), handle),
                       self.library.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size),
                                                            ctypes.c_ulonglong(address)),
                       self.library.cuMemGetAllocationGranularity(ctypes.byref(granularity), ctypes.byref(found),
                                                                  RECOMMENDED),
                       self.library.cuMemRelease(handle)):
            if result:
                raise RuntimeError(f"{address:#x}: CUDA error {result}")
        return Memory(found.handle_types, bool(found.rdma), base.value, size.value, granularity.value)


def registered(texts):
    """How many buffers NCCL has registered, say the logs of its ranks (NCCL_DEBUG_SUBSYS=REG)."""
    return sum(REGISTERED in line for text in texts for line in text.splitlines())


def nccl_library():
    """That which PyTorch has loaded; an empty string: it has NCCL inside."""
    for line in pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if "/libnccl.so" in line:
            return line.split(maxsplit=5)[-1]
    return ""


class Nccl:
    """Communicators are PyTorch's."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        pointer = ctypes.c_void_p
        for name, arguments in {"ncclCommRegister": (pointer, pointer, ctypes.c_size_t, ctypes.POINTER(pointer)),
                                "ncclCommDeregister": (pointer, pointer),
                                "ncclMemAlloc": (ctypes.POINTER(pointer), ctypes.c_size_t),
                                "ncclMemFree": (pointer,)}.items():
            getattr(library, name).argtypes = arguments
        self.library = library

    def register(self, communicator, address, size):
        handle = ctypes.c_void_p()
        check("ncclCommRegister", self.library.ncclCommRegister(communicator, address, size, ctypes.byref(handle)))
        return handle.value

    def deregister(self, communicator, handle):
        check("ncclCommDeregister", self.library.ncclCommDeregister(communicator, handle))

    def allocate(self, size):
        address = ctypes.c_void_p()
        check("ncclMemAlloc", self.library.ncclMemAlloc(ctypes.byref(address), size))
        return address.value

    def free(self, address):
        check("ncclMemFree", self.library.ncclMemFree(address))


def check(what, result):
    if result:
        raise RuntimeError(f"{what}: NCCL error {result}")


class Array:
    """Memory as PyTorch takes it in (torch.as_tensor): `count` of float32."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3}
