"""NUMBA_CUDA_MEMORY_MANAGER=emm.numba_on_cupy: Numba on emm, which CuPy's memory pool serves."""
from . import cupy_pool

cupy_pool.register()

from .numba import _numba_memory_manager  # noqa: E402, F401
