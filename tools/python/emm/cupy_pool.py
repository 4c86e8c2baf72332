"""CuPy's memory pool as emm's plugin: `emm.cupy_pool.register()` before the first context.

CuPy hands a freed block out again at once, on the stream that it was allocated for; emm's frees
without a stream promise no stream a block before all work that the context holds is done. So a freed
block waits here for an event of the whole context before CuPy gets it back.
"""
import collections
import ctypes
import threading

import cupy

from . import _api, _register
from ._api import lib
from ._error import Error

RecordEvent = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Cupy:
    """The manager of one context, over a pool of its own."""

    def __init__(self, info):
        record = lib.emm_driver_entry(b"cuCtxRecordEvent", 12050)
        if record is None:
            raise Error(_api.EMM_E_NOT_SUPPORTED, "CuPy's pool needs a driver of CUDA 12.5 or later")
        self.record = RecordEvent(record)
        self.cuda_context = info.cuda_context
        self.pool = cupy.cuda.MemoryPool()
        self.live = {}
        self.lock = threading.RLock()
        self.waiting = collections.deque()  # (event, blocks), the oldest first
        self.held = []  # freed during a capture, which an event would invalidate
        self.captures = 0

    def memalloc(self, size, _stream):
        self.collect()
        try:
            block = self.pool.malloc(size)
        except MemoryError:
            self.collect(wait=True)
            self.pool.free_all_blocks()
            block = self.pool.malloc(size)
        self.live[block.ptr] = block
        return block.ptr

    def memfree(self, ptr, _size, _stream):
        block = self.live.pop(ptr, None)
        if block is None:
            raise Error(_api.EMM_E_NOT_OWNED, f"{ptr:#x} is not a live allocation of CuPy's pool")
        with self.lock:
            self.held.append(block)
            if not self.captures:
                self.mark()

    def mark(self):
        """Marks the work of the context so far; after that work, all held blocks may go."""
        blocks, self.held = self.held, []
        event = cupy.cuda.Event(disable_timing=True)
        result = self.record(self.cuda_context, event.ptr)
        if result == 0:
            self.waiting.append((event, blocks))
        else:
            self.held = blocks + self.held  # an unannounced capture; the next free tries again

    def collect(self, wait=False):
        """Gives CuPy the blocks whose events are complete, or waits and gives all blocks."""
        with self.lock:
            while self.waiting and (wait or self.waiting[0][0].done):
                event, _blocks = self.waiting.popleft()
                if wait:
                    event.synchronize()

    def trim(self, keep_bytes):
        self.collect(wait=not self.captures)
        before = self.pool.total_bytes()
        if self.pool.free_bytes() > keep_bytes:
            self.pool.free_all_blocks()
        return before - self.pool.total_bytes()

    def stream_notice(self, _stream, notice):
        with self.lock:
            if notice == _api.EMM_STREAM_CAPTURE_BEGINS:
                self.captures += 1
            elif notice == _api.EMM_STREAM_CAPTURE_ENDS:
                self.captures -= 1
                if self.held and not self.captures:
                    self.mark()

    def get_memory_info(self):
        free, total = cupy.cuda.runtime.memGetInfo()
        return free + self.pool.free_bytes(), total

    def get_stats(self):
        live, reserved = self.pool.used_bytes(), self.pool.total_bytes()
        return _api.Stats(live_bytes=live, live_count=len(self.live), reserved_bytes=reserved,
                          cached_bytes=reserved - live)


def register():
    """Makes this the plugin. False: EMM_PLUGIN names another plugin and has priority."""
    return _register.register(Cupy, name="cupy", description="CuPy's memory pool",
                              capabilities=_api.EMM_PLUGIN_NEEDS_CURRENT | _api.EMM_PLUGIN_CACHES)
