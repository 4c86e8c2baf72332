"""The class that vLLM's registry makes; see emm.vllm. Imported in vLLM's workers alone."""
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

from .vllm import allocator

# Every level keeps these tags: state that a reload of the weights does not bring back.
_ALWAYS = ("runtime", "cudagraph")


class EmmBackend(SleepModeBackend):
    def suspend(self, level=1):
        """Level 1 keeps the weights in host memory; other levels lose them. The cache is always lost."""
        if not allocator().awake and not allocator().asleep:
            raise RuntimeError("emm: nothing can sleep, because vLLM has allocated nothing in emm's pools. "
                               "Its worker must be a vllm.v1.worker.worker_base.WorkerBase")
        allocator().sleep(("weights", *_ALWAYS) if level == 1 else _ALWAYS)
        self._state = "SUSPENDED"

    def resume(self, tags=None):
        self._state = "RESUMING"
        allocator().wake_up(tags)
        if not allocator().asleep:
            self._state = "RUNNING"

    def discard(self, tags):
        allocator().discard(tags)
        self._state = "SUSPENDED"

    @classmethod
    def is_supported(cls):
        import torch
        return torch.version.cuda is not None

    @classmethod
    def preserves_communicators(cls):
        """True: communicators have memory of their own, which stays."""
        return True

    @classmethod
    def preserves_compiled_artifacts(cls):
        """True: the process and all addresses stay."""
        return True

    @classmethod
    def preserves_graphs_with_communicators(cls):
        """False: NCCL may have registered the buffers of a captured graph, and does not learn of their new
        memory."""
        return False
