"""Proof of a commit that costs nothing, where the client library tells of commits.

Invariant: a listener says that a transaction was committed only if its library has said so after the outermost commit.
It may miss one; then the record is looked for instead. A session that a test has joined to a transaction of its own,
which is rolled back at the end of the test, tells of its commits like any other.
"""

from __future__ import annotations

from typing import Any, Self


class CommitListener:
    """Listens, as a context, to a session of SQLAlchemy, of either kind; other connections tell nothing.

    Attributes:
        has_heard: whether the session was committed since.
    """

    def __init__(self, connection: Any) -> None:
        self.has_heard = False
        self._session = _session_of(connection)

    def __enter__(self) -> Self:
        if self._session is not None:
            from sqlalchemy import event

            event.listen(self._session, "after_commit", self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            from sqlalchemy import event

            event.remove(self._session, "after_commit", self._hear)

    def _hear(self, session: Any) -> None:
        # The end of a savepoint is told in the same way, while it is still the current one.
        if not session.in_nested_transaction():
            self.has_heard = True


def _session_of(connection: Any) -> Any:
    """The plain session behind what `within=` gave; None where it is no session."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__}
    if names & {"sqlalchemy.orm.scoping.scoped_session", "sqlalchemy.ext.asyncio.scoping.async_scoped_session"}:
        return _session_of(connection())
    if "sqlalchemy.ext.asyncio.session.AsyncSession" in names:
        return connection.sync_session
    return connection if "sqlalchemy.orm.session.Session" in names else None
