"""emm as a memory resource of cuda.core."""
from ctypes import c_ulonglong

from cuda.core import Buffer
from cuda.core import MemoryResource as Base

from ._api import UNORDERED, lib
from ._error import check
from ._process import made_by


class MemoryResource(Base):
    """Device memory of one context. `dropped` tells that a reset has taken all of the memory back. Every
    stream may use the memory at once. A free waits for all streams, because the stream that it names may have
    ended."""

    def __init__(self, context, device_id):
        self._context = context
        self._device_id = device_id
        self.dropped = False

    def allocate(self, size, stream=None):
        ptr = made_by(lib.emm_memalloc, self._context, size, UNORDERED, kind=c_ulonglong)
        return Buffer.from_handle(ptr=ptr.value, size=size, mr=self)

    def deallocate(self, ptr, size, stream=None):
        if not self.dropped:
            check(lib.emm_memfree(self._context, int(ptr), size, UNORDERED))

    @property
    def is_device_accessible(self):
        return True

    @property
    def is_host_accessible(self):
        return False

    @property
    def device_id(self):
        return self._device_id
