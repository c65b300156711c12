"""Fixtures of the SDK suites."""

import pytest
from clients import Client


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def client(request):
    made = Client(request.param)
    yield made
    made.close()
