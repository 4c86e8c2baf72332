"""python_plugin.py: a plugin written in Python behind PyTorch's pools, on two devices. EMM_PLUGIN is not set."""
import ctypes
import faulthandler
import threading
import time

import emm
import emm.torch
import torch
from emm import _api
from emm._process import made_by

MIB = 1 << 20
driver = {name: ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(emm.lib.emm_driver_entry(name.encode(), 12000))
          for name, arguments in (("cuMemAlloc", [ctypes.c_void_p, ctypes.c_size_t]), ("cuMemFree", [ctypes.c_ulonglong]),
                                  ("cuMemHostAlloc", [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]),
                                  ("cuMemFreeHost", [ctypes.c_void_p]))}
busy = threading.Event()  # a slot of a named pool works, and lets the interpreter go
refusing = False


def work_in(name):
    if name:
        busy.set()
        time.sleep(.2)


class Plain:
    def __init__(self, info):
        self.name = info.pool
        work_in(self.name)

    def memalloc(self, size, stream):
        ptr = ctypes.c_ulonglong()
        assert driver["cuMemAlloc"](ctypes.byref(ptr), size) == 0
        return ptr.value

    def memfree(self, ptr, size, stream):
        driver["cuMemFree"](ptr)

    def set_access(self, device, flags):
        work_in(self.name)
        if refusing and self.name:
            raise emm.Error(_api.EMM_E_DRIVER, f"no access for device {device}")


def name_of(pool):
    return made_by(emm.lib.emm_context_get_info, emm.torch.context_of(pool), kind=_api.ContextInfo).pool


def beside(function):
    """Calls it while another thread asks for figures with the interpreter's lock, once a slot of a pool works."""
    asked = []

    def ask():
        assert busy.wait(60)
        asked.append((torch.cuda.memory_stats(), torch.cuda.host_memory_stats()))

    busy.clear()
    thread = threading.Thread(target=ask)
    thread.start()
    result = function()
    thread.join()
    assert len(asked) == 1
    return result


def in_pool(pool):
    with torch.cuda.use_mem_pool(pool):
        return torch.empty(MIB, dtype=torch.uint8, device="cuda:0")


def refused(function):
    try:
        function()
    except RuntimeError as error:
        return "no access for device 1" in str(error)
    return False


faulthandler.dump_traceback_later(180, exit=True)  # threads that wait for each other
assert emm.register(Plain)
emm.torch.use()
emm.torch.use_pinned_memory("pinned")
first, second = torch.cuda.MemPool(), torch.cuda.MemPool()
made = beside(lambda: in_pool(first))
far = torch.empty(MIB, dtype=torch.uint8, device="cuda:1")
with torch.cuda.device(1):
    pinned = beside(lambda: torch.empty(MIB, dtype=torch.uint8, pin_memory=True))
assert name_of(first) == b"torch#1" and pinned.is_pinned()

# Where a pool refuses another device, the program is told. A pool that was not made is made by the next call.
refusing = True
assert refused(lambda: far.to("cuda:0"))
assert refused(lambda: in_pool(second))
refusing = False
beside(lambda: in_pool(second))
assert name_of(second) == b"torch#2"
