"""How a run comes by one server of each kind, whoever of its processes asks first.

What always holds: at most one instance of a service is started per run, and none before somebody asks for it.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict
from typing import ClassVar, Generic, TypeVar

from tests.servers.databases import Client, Databases, Endpoint
from tests.servers.programs import ServerMissing
from tests.servers.room import Room

Handle = TypeVar("Handle")


class Service(ABC, Generic[Handle]):
    """One kind of server. A new kind is a file with a subclass, and a fixture in `plugin`."""

    name: ClassVar[str]
    variable: ClassVar[str]
    """The variable that names a server to use instead of a private one."""
    optional: ClassVar[bool] = False
    """Whether a run may be complete without it."""

    @abstractmethod
    def start(self, room: Room) -> Endpoint:
        """Start the instance of this run.

        Raises:
            ServerMissing: there is none on this machine, and none could be installed.
        """

    @abstractmethod
    def connect(self, endpoint: Endpoint) -> Handle:
        """What tests get in order to use the server."""

    def obtain(self, room: Room) -> Handle:
        """Use the server that the environment names, or the one of this run; start that if nobody did.

        Raises:
            ServerMissing: see `start`; whoever asks later gets the same answer.
        """
        if url := os.environ.get(self.variable):
            return self.connect(Endpoint(url))
        with room.lock(self.name):
            note = room.path / f"{self.name}.json"
            if not note.exists():
                note.write_text(json.dumps(self._try_to_start(room)))
            known = json.loads(note.read_text())
        if "missing" in known:
            raise ServerMissing(known["missing"])
        return self.connect(Endpoint(**known))

    def _try_to_start(self, room: Room) -> dict[str, str]:
        try:
            return asdict(self.start(room))
        except ServerMissing as missing:
            return {"missing": str(missing)}


class DatabaseService(Service[Databases]):
    """One kind of SQL server."""

    client: ClassVar[type[Client]]
    """How it is spoken to."""

    def connect(self, endpoint: Endpoint) -> Databases:
        return Databases(self.client(), endpoint)


def not_there(room: Room) -> Iterator[tuple[str, str]]:
    """The services that tests of this run asked for in vain, and why."""
    for note in sorted(room.path.glob("*.json")):
        known = json.loads(note.read_text())
        if "missing" in known:
            yield note.stem, known["missing"]
