"""A service that is dead: many calls add little to its load."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from semel.client.models import INTENT
from tests.client.conftest import Open
from tests.client.doors import LOST


class Dead:
    """Takes connections and ends each one without a word."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.connections = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self.listener.getsockname()
        return f"http://{host}:{port}"

    def _serve(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            with connection:
                if connection.recv(1) == b"!":
                    return
                self.connections += 1

    def stop(self) -> None:
        with socket.create_connection(self.listener.getsockname()) as last:
            last.sendall(b"!")
            self._thread.join(30)
        self.listener.close()


@pytest.fixture
def dead() -> Iterator[Dead]:
    service = Dead()
    yield service
    service.stop()


@pytest.mark.slow
def test_two_hundred_calls_make_no_more_tries_than_the_budget_allows(open_door: Open, dead: Dead) -> None:
    door = open_door("memory://", budget=20)
    for number in range(200):
        with pytest.raises(LOST):
            door.request("POST", f"{dead.url}/pay", b"{}", {INTENT: f"call {number}"})
    assert dead.connections == 220
    assert len(door.pending()) == 200
