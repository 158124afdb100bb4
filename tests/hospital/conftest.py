"""The insurer and the books as processes, once for all tests of a worker; each test has claims of its own."""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from examples.hospital.clients import Books, Insurer
from examples.hospital.sample import make_claim
from examples.hospital.settings import Settings
from tests.processes import child

ROOT = Path(__file__).parents[2]
_numbers = count(1)


@dataclass(frozen=True)
class Neighbours:
    """The systems around the hospital."""

    insurer: Insurer
    books: Books
    addresses: tuple[str, str]

    def effects(self, claim: str) -> dict[str, int]:
        """How often something was done for a claim, by its ledger."""
        found = {"claims": self.insurer, "appeals": self.insurer, "postings": self.books}
        return {
            kind: len([entry for entry in system.entries(kind) if claim in entry["asked"]])
            for kind, system in found.items()
        }

    def asked_for(self, claim: str) -> int:
        """How often the insurer was asked for a claim."""
        return sum(entry["asked_for"] for entry in self.insurer.entries("claims") if claim in entry["asked"])


@contextmanager
def served(module: str, **variables: str) -> Iterator[str]:
    """A server process on a socket of its own; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd = listener.fileno()
        command = [sys.executable, "-m", module, "--fd", str(fd)]
        with child(command, cwd=ROOT, env={**os.environ, **variables}, pass_fds=[fd], stdout=PIPE) as server:
            assert _is_ready(server)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def working(settings: Settings) -> Iterator[Popen[str]]:
    """A worker process; it is killed at the end. Its leases end when a test ends them, and never by themselves."""
    environment = {**os.environ, **settings.to_environment(), "SEMEL_POLICY__LEASE_FOR": "PT10M"}
    command = [sys.executable, "-m", "examples.hospital.working"]
    with child(command, cwd=ROOT, env=environment, stdout=PIPE) as process:
        assert _is_ready(process)
        yield process


def end_leases(settings: Settings) -> None:
    """Let the time of a killed worker be over."""
    with closing(sqlite3.connect(settings.database.removeprefix("sqlite:///"), timeout=30)) as rows, rows:
        rows.execute("UPDATE semel_record SET lease_us = created_us WHERE status = 'running'")


def _is_ready(process: Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "ready\n"


@pytest.fixture(scope="session")
def one_neighbourhood(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """Both systems: to start them takes longer than most tests."""
    folder = tmp_path_factory.mktemp("neighbours")
    with ExitStack() as stack:
        insurer, books = (
            stack.enter_context(served(f"examples.hospital.outside.{name}", LEDGER=str(folder / f"{name}.db")))
            for name in ("insurer", "books")
        )
        made = Neighbours(Insurer(insurer), Books(books), (insurer, books))
        yield made
        made.insurer.close()
        made.books.close()


@pytest.fixture
def neighbours(one_neighbourhood: Neighbours) -> Iterator[Neighbours]:
    """Both of them, without faults."""
    yield one_neighbourhood
    for system in (one_neighbourhood.insurer, one_neighbourhood.books):
        system.faults(lose_reply=0, error_reply=0, delay=0)


@pytest.fixture
def claim() -> dict[str, str]:
    """A claim that no other test has."""
    return make_claim(next(_numbers) + 5000)


@pytest.fixture
def refused_claim() -> dict[str, str]:
    """The same, and the insurer refuses it."""
    return make_claim(next(_numbers) + 5000, is_refused=True)
