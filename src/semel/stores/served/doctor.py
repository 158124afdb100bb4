"""Looking at a server: the port that each kind of server fills, and what is the same for all of them.

What always holds: an answer that cannot be had is a finding, not an error: whoever asks a doctor has trouble already.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from typing import Final, Protocol

from semel.errors import SchemaOutdated, SemelError
from semel.stores.doctor import Finding, Numbers, about_clock, about_records
from semel.stores.served.command import Command, Row
from semel.stores.served.migrate import Migrations, pending
from semel.stores.served.restored import Mark, Restoring
from semel.stores.served.settings import Settings
from semel.stores.served.talk import Talk

Looking = Generator[Command, list[Row], list[Finding]]
_ROUNDS = 5


class Doctor(Protocol):
    """How one kind of server is looked at."""

    def server(self) -> Looking:
        """Durability, replication, isolation, encoding: what the server is set to."""

    def connection(self) -> Looking:
        """Whether this connection leads to one session, or to a pool that changes it between transactions."""

    def tables(self) -> Looking:
        """Whether the tables are kept as they must be."""

    def numbers(self) -> Generator[Command, list[Row], Numbers]:
        """Figures about the records."""

    def now(self) -> Command:
        """One row: the store's clock in microseconds."""


TORN_PAGES: Final = "a crash can leave torn pages: switch it on, unless the file system writes whole pages"


class ServedDoctor:
    """What every server is asked in the same way; `numbers` is the statement that counts, with {names} in it."""

    def __init__(self, settings: Settings, names: Mapping[str, str], numbers: str) -> None:
        self._settings = settings
        self._names = names
        self._numbers = numbers.format(**names)

    def now(self) -> Command:
        """The store's clock."""
        return Command(f"SELECT {self._names['clock']}")

    def numbers(self) -> Generator[Command, list[Row], Numbers]:
        """Figures about the records."""
        return Numbers(*(yield Command(self._numbers))[0])


def examine(
    talk: Talk, doctor: Doctor, migrations: Migrations, restoring: Restoring, horizon: timedelta
) -> list[Finding]:
    """Everything that is found."""
    findings = [*talk.run(doctor.server()), *talk.run(doctor.connection()), _clock(talk, doctor)]
    schema = _schema(talk, migrations)
    findings.append(schema)
    if schema.verdict == "fix":
        return findings  # the tables are not those that the rest would ask
    try:
        findings += talk.run(doctor.tables())
        findings += _mark(talk.run(restoring.mark()), _now(talk, doctor))
        findings += about_records(talk.run(doctor.numbers()), horizon)
    except SemelError as error:
        findings.append(Finding("records", f"not known: {error.message}", "note", "look at what keeps the server busy"))
    return findings


def about_schema(version: str, left: Sequence[tuple[int, str]] | None) -> Finding:
    """What the pending migrations mean."""
    if left is None:
        return Finding("schema", "there are no tables", "fix", "run `semel migrate`", ("schema",))
    names = ", ".join(f"{number:04} {half}" for number, half in left)
    if any(half == "pre" for _, half in left):
        return Finding("schema", f"pending: {names}", "fix", "run `semel migrate`", ("schema",))
    if left:
        advice = "once no worker of the release before runs: `semel migrate --half post`"
        return Finding("schema", f"version {version}, pending: {names}", "note", advice)
    return Finding("schema", f"version {version}, nothing pending")


def _schema(talk: Talk, migrations: Migrations) -> Finding:
    try:
        return about_schema(str(migrations.newest), talk.run(pending(migrations)))
    except SchemaOutdated as error:
        return Finding("schema", error.message, "fix", "use the newer release", ("schema",))


def _mark(mark: Mark | None, now: int) -> list[Finding]:
    if mark is None:
        return []
    over = mark.until_us <= now
    left = timedelta(microseconds=mark.until_us - now)
    found = "the window is over" if over else f"keys without a record are held for another {left}"
    return [Finding("restore mark", found, "note", "take it away: `semel restored --end`" if over else "")]


def _now(talk: Talk, doctor: Doctor) -> int:
    return int(talk.run(_one(doctor.now()))[0][0])


def _one(command: Command) -> Generator[Command, list[Row], list[Row]]:
    return (yield command)


def _clock(talk: Talk, doctor: Doctor) -> Finding:
    """The round with the shortest way there and back is the most precise."""
    measured = []
    for _ in range(_ROUNDS):
        before = time.time_ns()
        store = _now(talk, doctor)
        after = time.time_ns()
        measured.append((after - before, (before + after) // 2000 - store))
    way, offset = min(measured)
    return about_clock(timedelta(microseconds=offset), timedelta(microseconds=way // 2000))
