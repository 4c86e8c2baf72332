"""The parts of vLLM that emm.vllm uses: the interfaces of 0.33.0 (commit 4ba787ec9) in words of our own.

SIGNATURES is what vllm_test.py holds emm's classes against, and, where EMM_TEST_VLLM names a folder with
vLLM's sources, those sources too.
"""
import abc
import contextlib
import importlib
import sys
import types

BACKEND = "vllm/device_allocator/sleep_mode_backend.py"
ALLOCATOR = "vllm/device_allocator/__init__.py"
WORKER = "vllm/v1/worker/worker_base.py"
# By file and class: each method with its arguments, and their defaults.
SIGNATURES = {
    (BACKEND, "SleepModeBackend"): {
        "suspend": {"self": None, "level": 1},
        "resume": {"self": None, "tags": None},
        "state": {"self": None},
        "discard": {"self": None, "tags": None},
        "is_supported": {"cls": None},
        "preserves_communicators": {"cls": None},
        "preserves_compiled_artifacts": {"cls": None},
        "preserves_graphs_with_communicators": {"cls": None},
        "supports_durable_storage": {"cls": None},
    },
    (BACKEND, "SleepModeBackendFactory"): {
        "register_backend": {"cls": None, "name": None, "module_path": None, "class_name": None},
        "get_backend_class": {"cls": None, "name": None},
        "create_backend": {"cls": None, "model_config": None},
    },
    (ALLOCATOR, "MemAllocator"): {
        "use_memory_pool": {"self": None, "tag": None},
        "sleep": {"self": None, "offload_tags": None},
        "discard": {"self": None, "tags": None},
        "wake_up": {"self": None, "tags": None},
        "get_current_usage": {"self": None},
    },
    (WORKER, "WorkerBase"): {
        "__init__": {"self": None, "vllm_config": None, "local_rank": None, "rank": None,
                     "distributed_init_method": None, "is_driver_worker": False},
    },
}


class SleepModeBackend(abc.ABC):
    def __init__(self):
        self._state = "RUNNING"

    @abc.abstractmethod
    def suspend(self, level=1):
        pass

    @abc.abstractmethod
    def resume(self, tags=None):
        pass

    def state(self):
        return self._state

    def discard(self, tags):
        raise RuntimeError("not supported")

    @classmethod
    def is_supported(cls):
        return True

    @classmethod
    def preserves_communicators(cls):
        return False

    @classmethod
    def preserves_compiled_artifacts(cls):
        return False

    @classmethod
    def preserves_graphs_with_communicators(cls):
        return False

    @classmethod
    def supports_durable_storage(cls):
        return False


class SleepModeBackendFactory:
    known = {}

    @classmethod
    def register_backend(cls, name, module_path, class_name):
        if name in cls.known:
            raise ValueError(f"{name} is there already")
        cls.known[name] = (module_path, class_name)

    @classmethod
    def get_backend_class(cls, name):
        module_path, class_name = cls.known[name]
        return getattr(importlib.import_module(module_path), class_name)

    @classmethod
    def create_backend(cls, model_config):
        return cls.get_backend_class(model_config.sleep_mode_backend)()


class WorkerBase:
    def __init__(self, vllm_config, local_rank, rank, distributed_init_method, is_driver_worker=False):
        self.made_with = (vllm_config, local_rank, rank, distributed_init_method, is_driver_worker)


def own_allocator():
    return "vLLM's own allocator"


class Conf:
    """The allocator's settings of PyTorch: whether they are without expandable segments now."""
    inside = False


@contextlib.contextmanager
def non_expandable_allocations():
    Conf.inside = True
    try:
        yield
    finally:
        Conf.inside = False


def install(registry=True):
    """Puts it in vLLM's place; without `registry` a vLLM from before there was one."""
    SleepModeBackendFactory.known = {}
    WorkerBase.__init__ = INITIALIZER
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
    contents = {
        "vllm": {}, "vllm.device_allocator": {"get_mem_allocator_instance": own_allocator},
        "vllm.device_allocator.alloc_conf": {"non_expandable_allocations": non_expandable_allocations},
        "vllm.v1": {}, "vllm.v1.worker": {}, "vllm.v1.worker.worker_base": {"WorkerBase": WorkerBase},
        # This module has imported the function by name.
        "vllm.v1.worker.gpu_worker": {"get_mem_allocator_instance": own_allocator},
    }
    if registry:
        contents["vllm.device_allocator.sleep_mode_backend"] = {
            "SleepModeBackend": SleepModeBackend, "SleepModeBackendFactory": SleepModeBackendFactory}
    for name, members in contents.items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(members)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    return sys.modules["vllm"]


INITIALIZER = WorkerBase.__init__


def config(backend="emm"):
    return types.SimpleNamespace(model_config=types.SimpleNamespace(sleep_mode_backend=backend))
