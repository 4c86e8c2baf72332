"""emm as a sleep-mode backend of vLLM: vllm serve MODEL --enable-sleep-mode --sleep-mode-backend emm

Written for vLLM 0.33.0 (commit 4ba787ec9), the interfaces in vllm/device_allocator/__init__.py and
sleep_mode_backend.py. The wheel of emm names register() as an entry point of vllm.general_plugins; where
emm is installed otherwise, a plugin of one's own calls it.

vLLM's registry has a class for going to sleep, and no place for the allocator whose memory then sleeps. So
a worker whose configuration names this backend gets this module's allocator in the place of vLLM's: each
tag of vLLM's ("weights", "kv_cache", "runtime", ...) is a pool of emm's of that name.
"""
import functools
import gc
import os
import sys
from contextlib import contextmanager, nullcontext

from ._error import OutOfMemoryError
from ._process import context_for_device, context_named, resume, stats
from ._sleeping import Regions, pause_all, use_pool

NAME = "emm"
# A wake-up by tags may leave these asleep. It wakes all others.
DEFERRABLE = ("weights", "kv_cache")
_GETTER = "get_mem_allocator_instance"


class Allocator:
    """A MemAllocator of vLLM: one emm pool for each tag. All calls come from one thread."""

    default_tag = "default"

    def __init__(self):
        use_pool()
        self.awake, self.asleep = set(), set()  # tags
        self._regions = Regions()

    @contextmanager
    def use_memory_pool(self, tag=None):
        """Tensors made in the block are in the pool of the tag; without a tag, in the default pool."""
        from . import torch as on_emm
        tag = self.default_tag if tag is None else tag
        with _without_expandable_segments(), self._regions.enter(on_emm.mem_pool(tag), ends=True):
            if tag not in self.asleep:
                self.awake.add(tag)
            yield

    def sleep(self, offload_tags=None):
        """Puts all pools to sleep. Those of `offload_tags` keep their content. After an error all pools are
        awake, and content that was to be kept is intact; other content may be lost."""
        kept = _several(self.default_tag if offload_tags is None else offload_tags)
        self._pause({tag: tag in kept for tag in self.awake})

    def discard(self, tags):
        self._pause({tag: False for tag in self.awake.intersection(_several(tags))})

    def wake_up(self, tags=None):
        """Wakes the pools of the tags. emm.OutOfMemoryError: the other pools stay asleep, and you can call
        this again."""
        for tag in sorted(self.asleep):
            if tags is None or tag in tags or tag not in DEFERRABLE:
                self._resume(tag)
                self.asleep.remove(tag)
                self.awake.add(tag)

    def get_current_usage(self):
        """Bytes in use in all its pools."""
        import torch
        context = context_for_device(torch.cuda.current_device())
        return sum(stats(context_named(context, tag)).live_bytes for tag in self.awake | self.asleep)

    def _pause(self, wanted):
        self._return_caches()
        pause_all(wanted)
        self.awake.difference_update(wanted)
        self.asleep.update(wanted)

    def _resume(self, tag):
        try:
            resume(tag, keep_copy=_keeps_host_memory())
        except OutOfMemoryError:
            self._return_caches()
            resume(tag, keep_copy=_keeps_host_memory())

    def _return_caches(self):
        """Returns unused memory, so that no pause copies it and a resume finds room. To look for it may take
        longer than the copy."""
        import torch
        gc.collect()
        self._regions.end_pools()
        torch.cuda.empty_cache()


@functools.cache
def allocator():
    """The allocator of this process."""
    return Allocator()


def register():
    """Registers the backend with vLLM. Does nothing if it is registered, or in a vLLM without the registry."""
    try:
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
        from vllm.v1.worker.worker_base import WorkerBase
    except ImportError:
        return
    try:
        SleepModeBackendFactory.register_backend(NAME, f"{__package__}._vllm_backend", "EmmBackend")
    except ValueError:
        return
    made = WorkerBase.__init__

    @functools.wraps(made)
    def make(self, vllm_config, *arguments, **named):
        if vllm_config.model_config.sleep_mode_backend == NAME:
            _serve()
        made(self, vllm_config, *arguments, **named)

    WorkerBase.__init__ = make


def _serve():
    """Replaces vLLM's allocator by allocator(), also in modules that have imported it by name."""
    import vllm.device_allocator
    replaced = getattr(vllm.device_allocator, _GETTER)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "vllm" and vars(module).get(_GETTER) is replaced:
            setattr(module, _GETTER, allocator)


def _several(tags):
    return (tags,) if isinstance(tags, str) else tuple(tags)


def _keeps_host_memory():
    """Whether pinned memory stays for the next sleep. As in vLLM's own backend, it stays unless
    VLLM_SLEEP_MODE_RELEASE_HOST_MEMORY is set."""
    return os.environ.get("VLLM_SLEEP_MODE_RELEASE_HOST_MEMORY", "0") in ("", "0")


def _without_expandable_segments():
    try:
        from vllm.device_allocator.alloc_conf import non_expandable_allocations
    except ImportError:
        return nullcontext()
    return non_expandable_allocations()
