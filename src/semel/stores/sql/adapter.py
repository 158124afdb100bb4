"""The port to client libraries: how each of them sends a command, and what its errors mean.

- There is one file per library in `adapters/`; what it has to know of a server is passed in as a `Server`.
- An adapter sends exactly the statements of a command, with bound values, on the connection it is given; it begins,
  commits and rolls back nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.errors import ErrorKind
from semel.stores.sql.settings import Settings

Session = TypeVar("Session")
KindOfError = Callable[[BaseException], ErrorKind | None]


@dataclass(frozen=True, slots=True)
class Server(Generic[Session]):
    """A kind of server, as far as the adapters of its client libraries have to know it. Its own package makes it.

    Attributes:
        name: for messages.
        dialects: what SQLAlchemy and Django call it.
        sync: what can be joined by `Semel`, for messages.
        awaited: what can be joined by `AsyncSemel`, for messages.
        error_kind: what an error of any client library of this server means, by its code or its DB-API class.
        session: what a new session of the store's own is set to, in the form that its adapters take.
    """

    name: str
    dialects: frozenset[str]
    sync: str
    awaited: str
    error_kind: KindOfError
    session: Callable[[Settings], Session]


class Joinable(Protocol):
    """A client library whose calls block, as far as a connection of the caller needs it."""

    def execute(self, connection: Any, command: Command) -> list[Row]:
        """The rows of the last statement of `command`."""

    def error_kind(self, error: Exception) -> ErrorKind | None:
        """What an error of this library means; None: nothing that is known."""

    def demand_transaction(self, connection: Any) -> None:
        """Refuse a connection of the caller that has no transaction open and would not begin one by itself.

        Raises:
            NotInTransaction: it has none.
        """


class Adapter(Joinable, Protocol):
    """The same with connections of the store's own, or borrowed ones."""

    @property
    def keeps(self) -> bool:
        """Whether connections are kept between uses; those that are borrowed are given back at once."""

    def connect(self, settings: Settings) -> Any:
        """A connection of the store's own, in autocommit, with the store's timeouts."""

    def close(self, connection: Any) -> None:
        """Let go of a connection; never raises."""


class AsyncJoinable(Protocol):
    """A client library whose calls are awaited, as far as a connection of the caller needs it."""

    def execute(self, connection: Any, command: Command) -> Awaitable[list[Row]]:
        """The rows of the last statement of `command`."""

    def error_kind(self, error: Exception) -> ErrorKind | None:
        """What an error of this library means; None: nothing that is known."""

    def demand_transaction(self, connection: Any) -> None:
        """Refuse a connection of the caller that has no transaction open and would not begin one by itself."""


class AsyncAdapter(AsyncJoinable, Protocol):
    """The same with connections of the store's own, or borrowed ones."""

    @property
    def keeps(self) -> bool:
        """Whether connections are kept between uses."""

    async def connect(self, settings: Settings) -> Any:
        """A connection of the store's own, in autocommit, with the store's timeouts."""

    async def close(self, connection: Any) -> None:
        """Let go of a connection; never raises."""


class PlaceholderStyle:
    """Turns the `?` of a text into the placeholders of a library; each text is made once."""

    def __init__(self, numbered: str) -> None:
        """`numbered` is what a mark becomes: `%s`, or `$` to be followed by its number."""
        self._mark = numbered
        self._made: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """The text, with its marks replaced."""
        made = self._made.get(text)
        if made is None:
            pieces = (text.replace("%", "%%") if self._mark == "%s" else text).split("?")
            marks = [f"{self._mark}{number}" if self._mark == "$" else self._mark for number in range(1, len(pieces))]
            made = pieces[0] + "".join(mark + piece for mark, piece in zip(marks, pieces[1:], strict=True))
            if len(self._made) > 500:  # noqa: PLR2004 - texts made for lists of every length
                self._made.clear()
            self._made[text] = made
        return made


def plain(rows: Iterable[Any]) -> list[Row]:
    """Rows as tuples, and bytes as bytes: some libraries give views of memory."""
    return [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in rows]


def kinds(thing: object) -> list[str]:
    """The names of the classes of `thing`, its own first."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(thing).__mro__]
