"""A database file with one record of each kind, and the real command in a process of its own."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from semel import About, Key, Policy, Record, Semel
from semel.cli import main
from semel.core.fingerprint import fingerprint
from semel.core.operations import Claim, Granted, Terms
from semel.core.record import show_record
from semel.stores.settings import machine_clock
from semel.stores.sqlite import SqliteStore
from tests.processes import run_bounded

HOUR = 3_600_000_000
NASTY = "\x1b[31mred\x1b[0m \x9b2J \u202eabc [bold]x[/bold]\nsecond line"


class Broken(Exception):
    """What a handler raises here."""


def breaks() -> None:
    raise Broken(NASTY)


@dataclass
class Database:
    """A file with records in it."""

    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def read(self, key: str, operation: str = "charge") -> Record:
        with Semel(self.path) as semel:
            record = semel.read(key, operation=operation, scope="acme")
        assert record is not None
        return record

    def nonces(self) -> list[bytes]:
        """What proves to the store who owns a record; nobody is ever shown it."""
        with closing(sqlite3.connect(self.path)) as connection:
            return [nonce for (nonce,) in connection.execute("SELECT nonce FROM semel_record")]

    def completed(self, key: str, value: object = "the secret value") -> Record:
        with Semel(SqliteStore(self.path)) as semel:
            semel.run(
                key,
                lambda: value,
                operation="charge",
                fingerprint=None,
                scope="acme",
                about=About(business_key="inv-1"),
            )
        return self.read(key)

    def failed(self, key: str, policy: Policy) -> Record:
        with Semel(self.path) as semel, pytest.raises(Broken):
            semel.run(key, breaks, operation="charge", fingerprint=None, scope="acme", policy=policy)
        return self.read(key)

    def in_doubt(self, key: str) -> Record:
        return self.failed(key, Policy(in_doubt="hold"))

    def with_steps(self, key: str) -> Record:
        semel = Semel(self.path, policy=Policy(in_doubt="hold"))

        def handler() -> None:
            semel.current().step("reserve", lambda: "a step's value")
            breaks()

        with semel, pytest.raises(Broken):
            semel.run(key, handler, operation="charge", fingerprint=None, scope="acme")
        return self.read(key)

    def running(self, key: str, lease: timedelta = timedelta(minutes=5)) -> Record:
        """A claim that nobody ever completes."""
        terms = Terms(lease // timedelta(microseconds=1), HOUR, "rerun", 0)
        identity = Key.of(key, operation="charge", scope="acme")
        store = SqliteStore(self.path)
        driver = store.driver()
        try:
            claim = Claim(identity, fingerprint(None), os.urandom(16), terms, About(process_instance="p-1"))
            [answers] = driver.perform([store.plan([claim], joined=False)])
        finally:
            driver.close()
        assert isinstance(answers, list)
        assert isinstance(answers[0], Granted)
        return show_record(answers[0].record)

    def expired(self, key: str) -> None:
        """A record whose time was over long ago."""
        past = SqliteStore(self.path, clock=lambda: machine_clock() - 48 * HOUR)
        with Semel(past, policy=Policy(keep_for=timedelta(hours=1))) as semel:
            semel.run(key, lambda: None, operation="charge", fingerprint=None, scope="acme")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "semel.db")


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "semel", *arguments]


def environment(**changes: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SEMEL_URL", "SEMEL_CACHE", "SEMEL_SETTINGS", "SEMEL_STORE", "COLUMNS", "FORCE_COLOR")
    }
    return kept | changes


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The real command in a process of its own, without a terminal."""

    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return run_bounded(command(arguments), 300, env=environment(**variables), cwd=tmp_path)

    return run


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """The same in this process, which is faster: for what does not need a process to be proved."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code = main(arguments)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)  # no terminal, whatever started pytest
        yield call
    forget_modules(tmp_path)


def forget_modules(folder: Path) -> None:
    """Let the apps of this folder be imported no more: the next test writes others of the same names."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SEMEL_URL", "SEMEL_CACHE", "SEMEL_SETTINGS", "SEMEL_STORE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
