"""The plainest EMM plugin for Numba: cuMemAlloc, and cuMemFree when the array goes."""
from numba import cuda
from numba.cuda.cudadrv import driver
from numba.cuda.cudadrv.driver import driver as calls


class PlainManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
    def memalloc(self, size):
        ptr = self._attempt_allocation(lambda: calls.cuMemAlloc(size))
        address = int(ptr)
        allocations = self.allocations

        def finalizer():
            if allocations.pop(address, None) is not None:
                calls.cuMemFree(ptr)

        self.allocations[address] = ptr
        return driver.MemoryPointer(self.context, ptr, size, finalizer=finalizer)

    def initialize(self):
        if self.deallocations.memory_capacity == driver._SizeNotSet:
            self.deallocations.memory_capacity = self.get_memory_info().total

    def reset(self):
        while self.allocations:
            _, ptr = self.allocations.popitem()
            if isinstance(ptr, driver.binding.CUdeviceptr):
                calls.cuMemFree(ptr)
        super().reset()

    def get_memory_info(self):
        return cuda.MemoryInfo(*calls.cuMemGetInfo())

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = PlainManager
