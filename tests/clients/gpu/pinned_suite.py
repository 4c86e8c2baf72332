"""A plugin of pytest's: every array that a test makes in pytest's own thread lies in pinned memory.

    python3 -m pytest -p pinned_suite --pyargs numpy._core.tests.test_mem_policy
"""
import emm
import emm.numpy

emm.numpy.use_pinned()


def pytest_terminal_summary(terminalreporter):
    stats = emm.stats(emm.context_for_device(0))
    terminalreporter.write_line(f"pinned by this process: {stats.host_reserved_bytes} bytes")
