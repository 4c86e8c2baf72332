"""A plugin of pytest's for RMM's own tests: it writes what each did, and puts emm below RMM's adaptors.

    RMM_SUITE_LOG=FILE RMM_SUITE_ON=emm python3 -m pytest -p rmm_on_emm python/rmm/rmm/tests

FILE gets a line of JSON for each phase of each test. With RMM_SUITE_ON=native the tests run as RMM's authors run
them. With emm, what is RMM's CudaMemoryResource in a test, and what rmm.reinitialize() begins with, is emm's.

On the simulated driver NVIDIA's runtime does not start. RMM's tests ask it for the device in Python, and the driver
answers here. What librmm itself asks of it fails there, so the tests of RMM's own resources do.
"""
import functools
import json
import os

import pytest
import rmm
import rmm.mr
from cuda.bindings import driver, runtime

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
    """What stands behind rmm.reinitialize(): managed memory is RMM's own there."""
    if managed_memory:
        NATIVE_INITIALIZE(pool_allocator, managed_memory, initial_pool_size, maximum_pool_size, devices, logging,
                          log_file_name)
        return
    for device in [devices or 0] if isinstance(devices, (int, type(None))) else devices:
        resource = below_the_adaptors(device, pool_allocator, initial_pool_size, maximum_pool_size)
        if logging:
            resource = rmm.mr.LoggingResourceAdaptor(resource, log_file_name)
        rmm.mr.set_per_device_resource(device, resource)


def allocations():
    """Those that emm has served in this process."""
    return emm.stats(emm.context_for_device(0)).allocations if ON_EMM else 0


def write(**line):
    with open(os.environ["RMM_SUITE_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def pytest_configure():
    if os.environ.get("EMM_DRIVER") == "sim":
        driver.cuInit(0)
        ask_the_driver()
    if ON_EMM:
        rmm.rmm._initialize = initialize
        rmm.mr.CudaMemoryResource = functools.partial(emm.rmm.resource)
        rmm.mr.CudaMemoryResource.__name__ = "CudaMemoryResource"  # of which tests are named
        emm.rmm.use()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    before = allocations()
    yield
    write(test=item.nodeid, phase="end", allocations=allocations() - before)


def reason_of(report):
    """The last line that says why, of what did not pass."""
    if isinstance(report.longrepr, tuple):  # of a skip: file, line and reason
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0 if crash else -1][:200] if lines else ""


def pytest_runtest_logreport(report):
    write(test=report.nodeid, phase=report.when, outcome=report.outcome, reason=reason_of(report))


def pytest_collectreport(report):
    """A file that cannot be imported counts as one test."""
    if report.failed:
        write(test=report.nodeid, phase="import", outcome="failed", reason=reason_of(report))


def pytest_sessionfinish(exitstatus):
    write(test="", phase="finished", outcome=str(int(exitstatus)))
