"""SQLAlchemy and Django on SQLite: the record commits with what they commit. within.md, table and points 4 to 6."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import create_async_engine

from semel import AsyncSemel, Policy, Semel
from semel.errors import KeyReused, NotInTransaction, TransactionAborted, UsageError
from semel.stores.sqlite import migrate
from tests.within.world import store

ROW = "INSERT INTO effect VALUES ('row')"


class Wrapped(Protocol):
    """A connection as its owner sees it."""

    thing: Any

    def sql(self, text: str) -> Any: ...
    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class Alchemy:
    def __init__(self, path: Path, kind: str, **settings: Any) -> None:
        self._engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0}, **settings)
        self.thing: Any = self._engine.connect() if kind == "connection" else orm.Session(self._engine)

    def sql(self, text: str) -> Any:
        return self.thing.execute(sa.text(text))

    def begin(self) -> None:
        """It begins by itself."""

    def commit(self) -> None:
        self.thing.commit()

    def rollback(self) -> None:
        self.thing.rollback()

    def close(self) -> None:
        self.thing.close()
        self._engine.dispose()


class Django:
    def __init__(self, path: Path) -> None:
        from tests.within.servers.django_connections import new_connection

        self.thing = new_connection(f"sqlite:///{path}")
        self._atomic: Any = None

    def sql(self, text: str) -> Any:
        with self.thing.cursor() as cursor:
            cursor.execute(text)

    def begin(self) -> None:
        from django.db import transaction

        self._atomic = transaction.atomic(using=self.thing.alias)
        self._atomic.__enter__()

    def commit(self) -> None:
        self._atomic.__exit__(None, None, None)

    def rollback(self) -> None:
        self._atomic.__exit__(RuntimeError, RuntimeError(), None)

    def close(self) -> None:
        if self.thing.in_atomic_block:
            self.rollback()
        self.thing.close()


MAKES: dict[str, Callable[[Path], Wrapped]] = {
    "sqlalchemy-connection": lambda path: Alchemy(path, "connection"),
    "sqlalchemy-session": lambda path: Alchemy(path, "session"),
    "django": Django,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "semel.db"
    migrate(path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE effect (name TEXT)")
    connection.close()
    return path


@pytest.fixture
def semel(path: Path) -> Iterator[Semel]:
    with Semel(store(path)) as semel:
        yield semel


@pytest.fixture(params=MAKES)
def caller(request: pytest.FixtureRequest, path: Path) -> Iterator[Wrapped]:
    caller = MAKES[request.param](path)
    yield caller
    caller.close()


def seen(path: Path) -> tuple[list[str], list[str]]:
    """The rows and the records that are committed."""
    connection = sqlite3.connect(path, timeout=0)
    found = [
        [value for (value,) in connection.execute(text)]
        for text in ("SELECT name FROM effect", "SELECT status FROM semel_record")
    ]
    connection.close()
    return found[0], found[1]


def call(semel: Semel, caller: Wrapped, handler: Callable[[], Any] | None = None, **settings: Any) -> Any:
    def writes() -> str:
        caller.sql(ROW)
        return "charged"

    return semel.within(caller.thing).run(
        "o-1", handler or writes, operation="charge", **{"fingerprint": None, **settings}
    )


def test_record_and_rows_commit_together(semel: Semel, caller: Wrapped, path: Path) -> None:
    caller.begin()
    assert call(semel, caller).value == "charged"
    assert seen(path) == ([], [])
    caller.commit()
    assert seen(path) == (["row"], ["completed"])


def test_record_and_rows_roll_back_together(semel: Semel, caller: Wrapped, path: Path) -> None:
    caller.begin()
    call(semel, caller)
    caller.rollback()
    assert seen(path) == ([], [])


def test_a_record_alone_is_the_transactions_too(semel: Semel, caller: Wrapped, path: Path) -> None:
    """The claim is the first statement, and the handler writes nothing: the commit must still reach the database."""
    caller.begin()
    call(semel, caller, lambda: "done")
    caller.commit()
    assert seen(path) == ([], ["completed"])


def test_one_within_outlives_a_commit_around_it(semel: Semel, caller: Wrapped, path: Path) -> None:
    with semel.within(caller.thing):
        for key in ("o-1", "o-2"):
            caller.begin()
            semel.run(key, lambda: caller.sql(ROW) and None, operation="charge", fingerprint=None)
            caller.commit()
    assert seen(path) == (["row"] * 2, ["completed"] * 2)


def test_what_was_committed_is_replayed_and_other_arguments_are_refused(semel: Semel, caller: Wrapped) -> None:
    caller.begin()
    call(semel, caller)
    caller.commit()
    caller.begin()
    assert call(semel, caller).replayed
    with pytest.raises(KeyReused):
        call(semel, caller, fingerprint=1)


def test_an_error_of_the_handler_is_settled(semel: Semel, caller: Wrapped, path: Path) -> None:
    def fails() -> None:
        caller.sql(ROW)
        raise ValueError

    caller.begin()
    with pytest.raises(ValueError, match=r"^$"):
        call(semel, caller, fails, policy=Policy(final_errors=(ValueError,)))
    caller.commit()
    assert seen(path) == (["row"], ["failed"])


@pytest.mark.parametrize("again", [False, True], ids=["alone", "and-begin"])
def test_commit_inside_the_handler_is_caught(semel: Semel, caller: Wrapped, path: Path, again: bool) -> None:
    def commits() -> str:
        caller.sql(ROW)
        caller.commit()
        if again:
            caller.begin()
            caller.sql(ROW)
        return "done"

    caller.begin()
    with pytest.raises(NotInTransaction):
        call(semel, caller, commits)
    assert seen(path)[0] == ["row"]


def test_rollback_inside_the_handler_is_caught(semel: Semel, caller: Wrapped, path: Path) -> None:
    def takes_back() -> str:
        caller.sql(ROW)
        caller.rollback()
        return "done"

    caller.begin()
    with pytest.raises(NotInTransaction):
        call(semel, caller, takes_back)
    assert seen(path) == ([], [])


def test_another_database_is_refused(semel: Semel, caller: Wrapped, tmp_path: Path) -> None:
    kind = type(caller)
    other = Django(tmp_path / "other.db") if kind is Django else Alchemy(tmp_path / "other.db", "session")
    other.begin()
    with pytest.raises(NotInTransaction, match=r"other\.db"):
        call(semel, other)
    other.close()


def test_autocommit_of_sqlalchemy_is_refused(semel: Semel, path: Path) -> None:
    caller = Alchemy(path, "connection", isolation_level="AUTOCOMMIT")
    with pytest.raises(NotInTransaction):
        call(semel, caller)
    assert seen(path) == ([], [])
    caller.close()


def test_a_session_whose_transaction_was_ended_inside_begin_is_told_so(semel: Semel, path: Path) -> None:
    caller = Alchemy(path, "session")

    def ends() -> str:
        caller.thing.rollback()
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"), caller.thing.begin():
        call(semel, caller, ends)
    caller.close()


def test_a_session_that_needs_a_rollback_is_transaction_aborted(semel: Semel, path: Path) -> None:
    class Base(orm.DeclarativeBase):
        """Rows of a user."""

    class Missing(Base):
        __tablename__ = "nowhere"
        name: orm.Mapped[str] = orm.mapped_column(primary_key=True)

    caller = Alchemy(path, "session")
    caller.thing.add(Missing(name="row"))
    with pytest.raises(sa.exc.OperationalError):
        caller.thing.flush()
    with pytest.raises(TransactionAborted):
        call(semel, caller)
    caller.close()


def test_django_outside_atomic_is_refused(semel: Semel, path: Path) -> None:
    caller = Django(path)
    with pytest.raises(NotInTransaction, match="atomic"):
        call(semel, caller)
    assert seen(path) == ([], [])
    caller.close()


def test_a_django_block_that_will_be_rolled_back_is_transaction_aborted(semel: Semel, path: Path) -> None:
    caller = Django(path)
    caller.begin()
    caller.thing.needs_rollback = True
    with pytest.raises(TransactionAborted):
        call(semel, caller)
    caller.close()


def test_an_async_connection_is_refused_by_code_that_blocks(path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    with pytest.raises(UsageError, match="sqlite3"):
        Semel(store(path)).within(engine.connect())


def test_a_blocking_session_is_refused_by_coroutines(path: Path) -> None:
    with pytest.raises(UsageError, match="with Semel"):
        AsyncSemel(store(path)).within(orm.Session(sa.create_engine(f"sqlite:///{path}")))


def test_a_session_of_another_server_is_refused(semel: Semel) -> None:
    with pytest.raises(UsageError, match="leads to postgresql"):
        semel.within(orm.Session(sa.create_engine("postgresql+psycopg://nowhere")))
