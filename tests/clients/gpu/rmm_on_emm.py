"""A plugin of pytest's for RMM's own tests: pytest_outcomes.py, which puts emm below RMM's adaptors too.

    PYTEST_OUTCOMES=FILE RMM_SUITE_ON=emm python3 -m pytest -p rmm_on_emm python/rmm/rmm/tests

With RMM_SUITE_ON=native the tests run as RMM's authors run them. With emm, what is RMM's CudaMemoryResource in a test, and
what rmm.reinitialize() begins with, is emm's.

On the simulated driver NVIDIA's runtime does not start. RMM's tests ask it for the device in Python, and the driver
answers here. What librmm itself asks of it fails there, so the tests of RMM's own resources do.
"""
import functools
import os

import rmm
import rmm.mr
from cuda.bindings import driver, runtime
from pytest_outcomes import *  # noqa: F403 # its hooks

ON_EMM = os.environ["RMM_SUITE_ON"] == "emm"
NATIVE_INITIALIZE = rmm.rmm._initialize
if ON_EMM:
    import emm
    import emm.rmm


def ask_the_driver():
    """The questions about devices that RMM's Python asks of CUDA's runtime, answered for device 0."""
    good = runtime.cudaError_t.cudaSuccess
    runtime.cudaGetDevice = lambda: (good, 0)
    runtime.cudaSetDevice = lambda device: (good,)
    runtime.cudaDeviceGetAttribute = lambda attribute, device: (
        good, driver.cuDeviceGetAttribute(driver.CUdevice_attribute(int(attribute)), device)[1])


def below_the_adaptors(device, pool_allocator, initial_pool_size, maximum_pool_size):
    """emm's resource, or RMM's pool over it."""
    resource = emm.rmm.resource(device)
    return rmm.mr.PoolMemoryResource(resource, initial_pool_size, maximum_pool_size) if pool_allocator else resource


def initialize(pool_allocator=False, managed_memory=False, initial_pool_size=None, maximum_pool_size=None,
               devices=0, logging=False, log_file_name=None):
    """Replaces rmm.reinitialize(). Managed memory stays RMM's own."""
    if managed_memory:
        NATIVE_INITIALIZE(pool_allocator, managed_memory, initial_pool_size, maximum_pool_size, devices, logging,
                          log_file_name)
        return
    for device in [devices or 0] if isinstance(devices, (int, type(None))) else devices:
        resource = below_the_adaptors(device, pool_allocator, initial_pool_size, maximum_pool_size)
        if logging:
            resource = rmm.mr.LoggingResourceAdaptor(resource, log_file_name)
        rmm.mr.set_per_device_resource(device, resource)


def pytest_configure():
    if os.environ.get("EMM_DRIVER") == "sim":
        driver.cuInit(0)
        ask_the_driver()
    if ON_EMM:
        rmm.rmm._initialize = initialize
        rmm.mr.CudaMemoryResource = functools.partial(emm.rmm.resource)
        rmm.mr.CudaMemoryResource.__name__ = "CudaMemoryResource"  # of which tests are named
        emm.rmm.use()
