"""A plugin of pytest's for Numba's tests from its wheel, which leaves their conftest.py out."""
import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
