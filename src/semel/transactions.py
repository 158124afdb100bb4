"""Transactions that semel begins for handlers: what `transaction=` may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from semel.engine.async_engine import AsyncEngine
from semel.errors import UsageError
from semel.extras import requires


class DjangoTransaction:
    """Begins `atomic` on the database of an alias in Django's settings, and gives its connection.

    Attributes:
        commits_or_raises: nobody needs to look for the record: what a handler marks for a rollback is an error here. In
            a `TestCase` of Django it is part of the test's own transaction, where others could not see it.
    """

    commits_or_raises = True

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def __repr__(self) -> str:
        return f"DjangoTransaction({self.alias!r})"

    @contextmanager
    def __call__(self) -> Iterator[Any]:
        """Begin one.

        Raises:
            RolledBack: the handler marked it for a rollback; nothing of it was written.
            UsageError: another one is open, with which it would be rolled back.
        """
        with requires("transaction=… with an alias", "django.db"):
            from django.db import connections, transaction

        connection = connections[self.alias]
        if connection.errors_occurred:  # what Django does at the begin of a request: one that was lost is opened again
            connection.close_if_unusable_or_obsolete()
        with ExitStack() as stack:
            try:
                stack.enter_context(transaction.atomic(using=self.alias, durable=True))
            except RuntimeError as error:
                raise UsageError(
                    f"transaction={self.alias!r} begins a transaction of its own, and was asked to inside another "
                    f"atomic() on that database; nothing ran. Call it outside, as in a view that is not atomic."
                ) from error
            yield connection
            if transaction.get_rollback(using=self.alias):
                raise RolledBack(
                    "The transaction was marked for a rollback, so nothing of it was written; the attempt is counted."
                )

    def close_connection(self) -> None:
        """Close the connection of this thread, which Django would keep for as long as the thread is remembered."""
        from django.db import connections

        connections[self.alias].close()


class RolledBack(Exception):
    """The handler had its own transaction rolled back, without an error."""


def transaction_of(given: Callable[[], Any] | str | None, engine: Any) -> Callable[[], Any] | None:
    """What begins a transaction.

    Raises:
        UsageError: it is an alias of Django, which has no transactions for coroutines.
    """
    if given is None or isinstance(given, DjangoTransaction):
        return given
    if callable(given):
        return _check_manager(given, "__aenter__" if isinstance(engine, AsyncEngine) else "__enter__")
    if not isinstance(given, str):
        raise UsageError(
            f"transaction is a callable that gives a context manager, or the alias of a Django database, not "
            f"{given!r:.80}; nothing ran."
        )
    if isinstance(engine, AsyncEngine):
        raise UsageError("Django has no transactions for coroutines; nothing ran. Use it with a Semel.")
    return DjangoTransaction(given)


def _check_manager(given: Callable[[], Any], enter: str) -> Callable[[], Any]:
    """What begins a transaction, and says what has to be changed where it gives something else."""

    def begin() -> Any:
        manager = given()
        if not hasattr(type(manager), enter):
            kind = "an async context manager" if enter == "__aenter__" else "a context manager"
            raise UsageError(
                f"transaction= gave a {type(manager).__qualname__}, which is not {kind}; nothing ran. Give a function "
                f"that contextlib makes one of, which begins, yields what within() takes, and commits."
            )
        return manager

    return begin
