"""The transaction of a request: response and effect commit together, before anything is sent.

What always holds: it is the outermost one, or nothing runs. `ATOMIC_REQUESTS` lies inside, and a view that is claimed
for in a decorator commits before its outcome is recorded, as it does under the middleware.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from django.db import connections, transaction

from semel.http.route import RouteOptions
from semel.http.transaction import TransactionFactory


class Atomic(TransactionFactory):
    """From a request to `transaction.atomic` on the database of `alias`, which gives its connection.

    Attributes:
        commits_or_raises: Django commits at the end of it, or raises: nobody needs to look for the record. In a
            `TestCase` it is part of the test's own transaction, which is rolled back at the end of the test.
    """

    commits_or_raises = True

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def __repr__(self) -> str:
        return f"atomic({self.alias!r})"

    @contextmanager
    def __call__(self, request: Any) -> Iterator[Any]:  # noqa: ARG002 - every request gets the same
        """Open it for one request."""
        with transaction.atomic(using=self.alias, durable=True):
            yield connections[self.alias]

    def release(self) -> None:
        """Give the connection of this thread back while its request waits; Django opens it again when it is needed."""
        connection = connections[self.alias]
        if not connection.in_atomic_block:
            connection.close()


def atomic(alias: str = "default") -> Atomic:
    """For `Route(…, transaction=atomic("default"))`: the view runs in a transaction on the database of that alias."""
    return Atomic(alias)


def with_aliases(given: dict[str, Any]) -> RouteOptions:
    """Settings of a route in which `transaction` may be an alias."""
    transaction = given.get("transaction")
    return cast(
        "RouteOptions", {**given, "transaction": Atomic(transaction)} if isinstance(transaction, str) else given
    )


class AllAliases(set[str]):
    """Contains every alias: Django then opens no `ATOMIC_REQUESTS` transaction; it is opened inside the claim.

    Its members are those that were to be left alone altogether.
    """

    def __contains__(self, alias: object) -> bool:
        return True

    def leaves_alone(self, alias: str) -> bool:
        """Whether the view was marked as one without a transaction there."""
        return super().__contains__(alias)


@contextmanager
def as_requested(left_alone: Iterable[str]) -> Iterator[None]:
    """The transactions that `ATOMIC_REQUESTS` asks for, without those of the aliases that are left alone."""
    known = AllAliases(left_alone)
    with ExitStack() as stack:
        for alias, settings in connections.settings.items():
            if settings["ATOMIC_REQUESTS"] and not known.leaves_alone(alias):
                stack.enter_context(transaction.atomic(using=alias))
        yield
