"""What the tests of clients share."""

import threading
from collections.abc import Iterator

import pytest

from tests.clients.serving import Service


@pytest.fixture
def service() -> Iterator[Service]:
    """A service of its own for each test."""
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield service
        service.shutdown()
        thread.join()
