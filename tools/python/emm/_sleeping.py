"""Pools with names that go to sleep together: what emm.vllm and emm.torch_memory_saver have in common."""
import weakref
from contextlib import contextmanager

from . import _process
from ._process import plugin_info, set_plugin


def use_pool():
    """Chooses a plugin that can pause, unless the program or its environment has chosen a plugin. Raises
    Error if the default plugin serves already, because it cannot pause."""
    if plugin_info().selected_by == b"default":
        set_plugin("pool")


def pause_all(wanted):
    """Pauses the pools of `wanted`: by name, whether the content is kept. Pauses all of them or none; a pool
    that is paused already stays so. If a pool refuses, pools whose content was to be discarded may have lost
    it."""
    # A copy may lack host memory; so those that are discarded come last.
    _process.pause_all([(name, not wanted[name]) for name in sorted(wanted, key=wanted.get, reverse=True)])


class Regions:
    """Parts of a program whose tensors are in a pool of PyTorch's.

    The end of a torch.cuda.MemPool returns what was freed in it. So a pool that is to end waits until PyTorch can end
    it. Any thread.
    """

    def __init__(self):
        self._ending = []

    @contextmanager
    def enter(self, pool, ends=False):
        """Enters the pool. With `ends`, the pool is not used afterwards."""
        import torch
        with self.entered():
            try:
                with torch.cuda.use_mem_pool(pool):
                    yield
            finally:  # also after an error: the end of this frame must not be the pool's
                if ends:
                    self._ending.append(pool)

    @contextmanager
    def entered(self):
        """Enters the pool for code that uses it by itself, such as the capture of a graph."""
        self.end_pools()
        try:
            yield
        finally:
            self.end_pools()

    def end_with(self, user, pool):
        """Ends the pool, in a later call, when each `user` that it was passed with is gone."""
        weakref.finalize(user, self._ending.append, pool).atexit = False

    def end_pools(self):
        if self._ending and _can_end_pools():
            self._ending.clear()


def _can_end_pools():
    """PyTorch's own allocator aborts the process if a pool ends while another is in use, by whatever part of the
    program. That allocator waits for its streams when it empties its cache, unless a pool is in use on that device."""
    import torch
    if torch.cuda.is_current_stream_capturing():
        return False
    if torch.cuda.get_allocator_backend() != "native":
        return True
    before = _waits_by_device(torch)
    try:
        torch.cuda.empty_cache()
    except RuntimeError:  # in PyTorch before 2.9, for the same reason
        return False
    return all(now != then for now, then in zip(_waits_by_device(torch), before))


def _waits_by_device(torch):
    return [torch.cuda.memory_stats(device)["num_sync_all_streams"] for device in range(torch.cuda.device_count())]
