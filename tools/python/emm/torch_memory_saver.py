"""torch_memory_saver's Python interface, that of version 0.0.10, served by emm's named pools.

    from emm.torch_memory_saver import torch_memory_saver
    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
        x = torch.full((1_000_000_000,), 100, dtype=torch.uint8, device="cuda")
    torch_memory_saver.pause("weights")
    torch_memory_saver.resume("weights")

A program that says `import torch_memory_saver` is served without a change, and its subprocesses too:

    export PYTHONPATH=$(python3 -m emm.torch_memory_saver)${PYTHONPATH:+:$PYTHONPATH}
    python3 program.py

Nothing is preloaded: both hook modes are the same, and cuda_graph() works in both. What differs from the
package is in tools/python/SERVING.md. Memory of a tag that is paused cannot be added to until it is resumed.
"""
import hashlib
import os
import pathlib
import re
import threading
import warnings
import weakref
from contextlib import contextmanager

from ._process import read_paused, resume
from ._sleeping import Regions, pause_all, use_pool

_DEFAULT = "default"
_FOLDER = pathlib.Path(__file__).with_name("in_place_of")
_KEPT = ".kept"


class TorchMemorySaver:
    """Regions of tensors by tag. pause() and resume() come one at a time; any thread may enter a region.

    PyTorch lets one thread at a time into a pool. So a region of a tag that is entered already, by this thread or
    another one, is PyTorch's RuntimeError ("already recording to mempool_id")."""

    enabled = True

    def __init__(self):
        self._hook_mode = "torch"
        self._pools = {}  # name of a pool: its tag
        self._asleep = set()  # names
        self._torch_pools, self._regions = {}, Regions()
        self._graph_pools, self._making = weakref.WeakValueDictionary(), threading.Lock()
        self.retain_cpu_backup = os.environ.get("TMS_RETAIN_CPU_BACKUP", "").lower() in ("1", "true", "yes")

    @contextmanager
    def region(self, tag=_DEFAULT, enable_cpu_backup=False, enable_disk_backup=False, cpu_backup_backend=None):
        """Tensors made in the block lose their memory by pause(tag). With `enable_cpu_backup` they keep their
        content."""
        _check_backup(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        with self._regions.enter(self._torch_pool(tag, enable_cpu_backup)):
            yield

    @contextmanager
    def cuda_graph(self, cuda_graph, pool=None, stream=None, capture_error_mode="global", tag=_DEFAULT,
                   enable_cpu_backup=False, cpu_backup_backend=None):
        """torch.cuda.graph, whose memory pause(tag) returns. Graphs with the same `pool` and tag share memory; without
        `pool` a graph has memory of its own. Memory of a graph that is gone goes back with the next call of this
        object that comes while no pool of PyTorch's is in use, and empties PyTorch's cache."""
        import torch
        _check_backup(enable_cpu_backup, False, cpu_backup_backend)
        of_tag = self._graph_pool(tag, enable_cpu_backup, _handle(pool))
        self._regions.end_with(cuda_graph, of_tag)
        with self._regions.entered(), \
                torch.cuda.graph(cuda_graph, pool=of_tag.id, stream=stream, capture_error_mode=capture_error_mode):
            yield

    @contextmanager
    def disable(self):
        """Inside a region: tensors made in this block keep their memory over a pause."""
        import torch
        with self._regions.enter(torch.cuda.MemPool(), ends=True):
            yield

    def pause(self, tag=None):
        """Returns the memory of the tag to the device; without a tag, the memory of all tags."""
        self._regions.end_pools()
        wanted = {name: name.endswith(_KEPT) for name in self._named(tag) if name not in self._asleep}
        pause_all(wanted)
        self._asleep.update(wanted)

    def resume(self, tag=None):
        """Takes the memory of the tag again. emm.OutOfMemoryError: the device lacks memory; the rest stays
        paused, and you can call this again."""
        self._regions.end_pools()
        for name in self._named(tag):
            resume(name, keep_copy=self.retain_cpu_backup)
            self._asleep.discard(name)

    def get_cpu_backup(self, x, zero_copy=False):
        """A tensor in host memory with the content that `x` had when its tag was paused; None while the tag
        is not paused. Always a copy, whatever `zero_copy` says, because the content may be in several parts."""
        import torch
        assert x.is_cuda, f"{x.device=}"
        assert x.is_contiguous(), f"{x.shape=} {x.stride()=} {x.dtype=}"
        backup = torch.empty(x.shape, dtype=x.dtype, device="cpu")
        found = any(read_paused(name, x.data_ptr(), x.nbytes, backup.data_ptr()) for name in self._asleep)
        return backup if found else None

    @property
    def hook_mode(self):
        return self._hook_mode

    @hook_mode.setter
    def hook_mode(self, mode):
        if mode not in ("preload", "torch"):
            raise ValueError(f"hook_mode: expected 'preload' or 'torch', found {mode!r}")
        self._hook_mode = mode

    @property
    def memory_margin_bytes(self):
        raise NotImplementedError("Only setter is supported")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value):
        warnings.warn("emm keeps no margin of the device's memory free: EMM_PLUGIN=pool:max= bounds each pool, "
                      "and EMM_LIMIT the process", RuntimeWarning, stacklevel=2)

    def set_disk_backup_dir(self, path):
        raise NotImplementedError(_NO_DISK)

    def _named(self, tag):
        return [name for name, its in list(self._pools.items()) if tag is None or its == tag]

    def _torch_pool(self, tag, keeps):
        key = pool_name(tag, keeps), _device()
        with self._making:
            if key not in self._torch_pools:
                self._torch_pools[key] = self._make_pool(tag, keeps)
            return self._torch_pools[key]

    def _graph_pool(self, tag, keeps, handle):
        """The pool of all graphs with the handle, while one of them lives; for None a new pool."""
        key = pool_name(tag, keeps), _device()
        with self._making:
            made = self._graph_pools.get((*key, handle))
            if made is None:
                made = self._make_pool(tag, keeps)
                self._graph_pools[(*key, made.id)] = made  # as graph.pool() says
                if handle is not None:
                    self._graph_pools[(*key, handle)] = made
            return made

    def _make_pool(self, tag, keeps):
        from . import torch as on_emm
        use_pool()
        name = pool_name(tag, keeps)
        made = on_emm.mem_pool(name)
        self._pools[name] = tag
        return made


_NO_DISK = "emm keeps what is paused in host memory, not on disk: enable_cpu_backup=True, or neither"


def pool_name(tag, keeps):
    """The name of the pool for a tag. A tag may be any text; names in emm have 31 letters, digits, '-', '_'
    or '.'."""
    suffix = _KEPT if keeps else ""
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,26}", tag) and not tag.endswith(_KEPT):
        return tag + suffix
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', tag)[:15]}-{hashlib.sha256(tag.encode()).hexdigest()[:10]}{suffix}"


@contextmanager
def configure_subprocess():
    """Subprocesses started inside the block find this module as torch_memory_saver."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_FOLDER), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _check_backup(enable_cpu_backup, enable_disk_backup, backend):
    if enable_disk_backup:
        raise NotImplementedError(_NO_DISK)
    if backend is not None and not enable_cpu_backup:
        raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
    if backend not in (None, "pinned", "mmap"):
        raise ValueError(f"cpu_backup_backend: expected 'pinned' or 'mmap', found {backend!r}")


def _device():
    import torch
    return torch.cuda.current_device()


def _handle(pool):
    """The key of a graph's pool, from the values that torch.cuda.graph takes."""
    return pool if pool is None or isinstance(pool, tuple) else pool.id


torch_memory_saver = TorchMemorySaver()

if __name__ == "__main__":
    print(_FOLDER)
