"""The migration runner of every SQL database: what is pending, and applying it, as flows.

Migrations are numbered SQL files: `0003_name.sql`, and `0003_name.post.sql` for what has to wait until no worker of the
previous release runs.

- One process applies; the others wait and then find nothing to do.
- A half that cannot get its locks at once gives up and tries again, so that workers never queue behind it for longer
  than `lock_timeout`.
- After `pre` alone the previous release still works, so that a rollout needs no pause; `post` shuts it out. The last
  post half is only applied when asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Final, Protocol, TypeVar

from semel.errors import SchemaOutdated, StoreUnavailable, UsageError
from semel.stores.admin import Half
from semel.stores.sql.dialect import Command, Row

Step = tuple[int, Half]
Building = Generator[Command, list[Row], list[str]]
T = TypeVar("T")
Patient = Generator[Command, list[Row], T]

_WAITS: Final = 6000  # pauses before the migrating process is believed to be stuck: ten minutes
_TRIES: Final = 20


class Schema(Protocol):
    """What one kind of database is migrated to."""

    @property
    def newest(self) -> int:
        """The version that this release works with."""

    def applied(self) -> Command:
        """Rows of version and whether the post half was applied too."""

    def has_post(self, version: int) -> bool:
        """Whether a migration has a second half."""

    def creation(self, partitions: int = 0) -> Sequence[Command]:
        """All that creates the newest schema where there is none."""

    def creation_sql(self, partitions: int = 0) -> str:
        """The same as text."""

    def half(self, version: int, half: Half) -> Sequence[Command]:
        """One half of a migration, and the note that it was applied."""

    def half_sql(self, version: int, half: Half) -> str:
        """The same as text."""

    def transact(self, make: Callable[[], Generator[Command, list[Row], T]]) -> Patient[T]:
        """Run one of these as often as it takes."""


class Migrations(Schema, Protocol):
    """How a database is migrated that others use meanwhile."""

    def lock(self) -> Command:
        """One row: whether this process may migrate now."""

    def pause(self) -> Command:
        """Wait a moment, on the server."""

    def unlock(self) -> Command:
        """Let the next one migrate."""

    def undo(self) -> Command:
        """What leaves a transaction that failed."""

    def search(self) -> Building:
        """Make the indexes for searching; answers the names of those that were missing."""


class RetriesLocks(Protocol):
    """What trying again needs of a server."""

    def pause(self) -> Command:
        """Wait a moment, on the server."""

    def undo(self) -> Command:
        """What leaves a transaction that failed."""


def migrate_schema(migrations: Migrations, half: Half | None, *, search: bool, partitions: int) -> Building:
    """Apply what is pending; answers what was done, in words.

    Raises:
        SchemaOutdated: the tables are of a newer release.
        StoreUnavailable: a lock was not to be had.
        UsageError: partitions were asked for, and the tables are there already.
    """
    yield from acquire_lock(migrations)
    try:
        done = yield from apply_pending(migrations, half, partitions)
        if search:
            done += [f"index {name}" for name in (yield from migrations.search())]
    except Exception:
        yield migrations.undo()
        yield migrations.unlock()
        raise
    yield migrations.unlock()
    return done


def pending(migrations: Schema) -> Generator[Command, list[Row], list[Step] | None]:
    """Which halves are not applied yet, in order; None where there are no tables at all.

    Raises:
        SchemaOutdated: the tables are of a newer release.
    """
    try:
        rows = yield migrations.applied()
    except SchemaOutdated:
        return None
    version = max((row[0] for row in rows), default=0)
    if version > migrations.newest:
        message = (
            f"The schema has version {version}, and this release knows {migrations.newest}; nothing was changed. "
            f"Migrate with the newer release."
        )
        raise SchemaOutdated(message, version=version, known=migrations.newest)
    return list(_steps(migrations, dict(rows))) if rows else None


def _steps(migrations: Schema, posts: dict[int, bool]) -> Iterator[Step]:
    for version in range(1, migrations.newest + 1):
        if version not in posts:
            yield version, "pre"
        if migrations.has_post(version) and not posts.get(version, False):
            yield version, "post"


def choose_steps(steps: Sequence[Step], newest: int, half: Half | None) -> list[Step]:
    """Those of the pending halves that are applied now: without a word all but the last post half.

    An earlier post half comes before the next pre half: the release that needs it gone is two behind by then.
    """
    last = (newest, "post")
    match half:
        case "post":
            missing = [version for version, kind in steps if kind == "pre"]
            if missing:
                message = (
                    f"The pre half of {missing[0]:04} is not applied yet; nothing was changed. "
                    f"Run `semel migrate` first, and --half post once no older worker runs."
                )
                raise UsageError(message)
            return list(steps)
        case _:
            return [step for step in steps if step != last]


def apply_pending(migrations: Schema, half: Half | None, partitions: int) -> Building:
    """Apply what is pending, as the only process that does so; answers what was done, in words.

    Raises:
        SchemaOutdated: the tables are of a newer release.
        UsageError: partitions were asked for, and the tables are there already.
    """
    steps = yield from pending(migrations)
    if steps is None:
        yield from migrations.transact(partial(_each, migrations.creation(partitions)))
        return [f"{version:04}" for version in range(1, migrations.newest + 1)]
    if partitions:
        message = "Partitions can only be chosen when the tables are created, and they are there; nothing was changed."
        raise UsageError(message)
    done = []
    for version, kind in choose_steps(steps, migrations.newest, half):
        yield from migrations.transact(partial(_each, migrations.half(version, kind)))
        done.append(f"{version:04} {kind}" if migrations.has_post(version) else f"{version:04}")
    return done


def acquire_lock(migrations: Migrations) -> Generator[Command, list[Row], None]:
    """Be the one who changes the schema, once the others are done.

    Raises:
        StoreUnavailable: somebody else has been at it for too long.
    """
    for _ in range(_WAITS):
        if (yield migrations.lock())[0][0]:
            return
        yield migrations.pause()
    message = "Another process has been migrating this database for ten minutes; nothing was changed. Look at it first."
    raise StoreUnavailable(message)


def with_retries(migrations: RetriesLocks, make: Callable[[], Generator[Command, list[Row], T]]) -> Patient[T]:
    """Run a transaction, from the start again where it could not get its locks."""
    turn = 0
    while True:
        turn += 1
        try:
            return (yield from make())
        except StoreUnavailable:
            yield migrations.undo()  # raises by itself where the connection is gone
            if turn == _TRIES:
                raise
            yield migrations.pause()


def _each(commands: Sequence[Command]) -> Generator[Command, list[Row], None]:
    for command in commands:  # noqa: UP028 - a list cannot be sent the rows
        yield command


def check_version(version: int, newest: int, name: str, *, oldest: int | None = None) -> None:
    """Refuse a schema that this release cannot work with.

    One that is newer is fine while its second half has not been applied: `oldest` is the version that a release has to
    know. So the schema can be migrated before the workers are replaced, one by one.

    Raises:
        SchemaOutdated: it is older, or too new.
    """
    needed = version if oldest is None else oldest
    if version >= newest >= needed:
        return
    message = (
        f"{name} has schema version {version}, which needs a release that knows {needed}, and this one knows {newest}; "
        f"nothing ran. Use the newer release that wrote it."
        if version > newest
        else f"{name} has schema version {version}, and this release needs {newest}; nothing ran. Run `semel migrate`."
    )
    raise SchemaOutdated(message, version=version, known=newest)


Scripts = Mapping[tuple[int, Half], str]


@cache
def scripts_of(package: str) -> Scripts:
    """The files of a release, by version and half."""
    found: dict[tuple[int, Half], str] = {}
    for entry in files(package).joinpath("schema").iterdir():
        if entry.name.endswith(".sql"):
            half: Half = "post" if entry.name.endswith(".post.sql") else "pre"
            found[int(entry.name[:4]), half] = entry.read_text(encoding="utf-8")
    return found


def statements_of(script: str) -> Iterator[str]:
    """The single statements of a script: each ends with a semicolon at the end of a line that is no comment.

    Semicolons inside the body of a function or a trigger end nothing.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        is_comment = line.lstrip().startswith("--")
        if is_comment and not statement.strip():
            continue
        statement += line
        if line.rstrip().endswith(";") and not is_comment and not _is_in_body(statement):
            yield statement.strip().rstrip(";")
            statement = ""


_WITH_BODY: Final = re.compile(r"CREATE TRIGGER\b.*\bBEGIN\b", re.DOTALL)


def _is_in_body(statement: str) -> bool:
    if statement.count("$body$") % 2:
        return True
    return bool(_WITH_BODY.match(statement.lstrip())) and not statement.rstrip().endswith("END;")


def text_of(statements: Iterable[str]) -> str:
    """Statements as a script."""
    return "".join(f"{statement};\n" for statement in statements)


_APPLIED: Final = "SELECT version, post FROM {schema_table} ORDER BY version"
_NOTE_POST: Final = "UPDATE {{schema_table}} SET post = true, oldest = {version} WHERE version = {version}"
RECORDS: Final = 1  # the migration that makes the table of records


class SqlSchema:
    """The schema of one place. `note` is the statement that writes down a first half, with {names} in it."""

    def __init__(self, scripts: Scripts, names: Mapping[str, str], ready: Command, note: str) -> None:
        self._scripts = scripts
        self._names = names
        self._ready = ready
        self._note_text = note

    @property
    def newest(self) -> int:
        """The version that this release works with."""
        return max(version for version, _ in self._scripts)

    def ready(self) -> Command:
        """What a new connection is asked first."""
        return self._ready

    def applied(self) -> Command:
        """Rows of version and whether the post half was applied too."""
        return Command(self._named(_APPLIED))

    def has_post(self, version: int) -> bool:
        """Whether a migration has a second half."""
        return (version, "post") in self._scripts

    def half_sql(self, version: int, half: Half) -> str:
        """One half of a migration, and the note that it was applied, as text."""
        return text_of(self._half(version, half))

    def half(self, version: int, half: Half) -> Sequence[Command]:
        """One half of a migration, and the note that it was applied."""
        return list(map(Command, self._half(version, half)))

    def transact(self, make: Callable[[], Generator[Command, list[Row], T]]) -> Patient[T]:
        """Once: the caller is in a transaction already."""
        return make()

    def _creating(self, partitions: int = 0) -> Iterator[str]:
        del partitions
        for version in range(1, self.newest + 1):
            yield from self._half(version, "pre")
            if self.has_post(version):
                yield from self._half(version, "post")

    def _half(self, version: int, half: Half) -> Iterator[str]:
        yield from statements_of(self._named(self._scripts.get((version, half), "")))
        yield self._note(version) if half == "pre" else self._noted_post(version)

    def _note(self, version: int) -> str:
        post = "false" if self.has_post(version) else "true"
        return self._named(self._note_text.format(version=version, oldest=max(version - 1, 1), post=post))

    def _noted_post(self, version: int) -> str:
        return self._named(_NOTE_POST.format(version=version))

    def _named(self, script: str) -> str:
        """A script with the names of this place."""
        for name, text in self._names.items():
            script = script.replace(f"{{{name}}}", text)
        return script


class ServerSchema(SqlSchema):
    """The schema on a server that workers use meanwhile: what cannot get its locks tries again."""

    def transact(self, make: Callable[[], Generator[Command, list[Row], T]]) -> Patient[T]:
        """As often as it takes."""
        return with_retries(self, make)

    def pause(self) -> Command:
        """Wait a moment before trying again."""
        raise NotImplementedError

    def undo(self) -> Command:
        """Leave a transaction that failed."""
        raise NotImplementedError
