"""Which operations cannot be reconciled here: those with records in doubt whose hook this process does not know.

Hooks are Python code, so a server without `--app` knows none, and what waits for one stays in doubt until its own
service, or a person, decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from semel.core.flow import Flow, ask
from semel.core.operations import Page, Query, Scan
from semel.core.record import Status, StoredRecord, instant
from semel.core.store import Capability
from semel.engine.engine import engine_of
from semel.server.access import Permission, User
from semel.server.actions import Actions

MOST: Final = 10_000
"""How many records in doubt are looked at."""
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class OperationWithoutHook:
    """An operation with records in doubt under `reconcile` whose hook is not known here.

    Attributes:
        operation: which.
        number: how many of its records wait for a hook.
        oldest: since when the oldest one does.
        reference: the oldest one.
        scope: whose that is; empty: shared.
    """

    operation: str
    number: int
    oldest: datetime
    reference: str
    scope: str


@dataclass(frozen=True, slots=True)
class OperationsWithoutHook:
    """Operations that cannot be reconciled here.

    Attributes:
        operations: by name; empty: there are none.
        is_exact: whether all records in doubt were looked at.
        is_looked_for: False where the store could only find them by reading everything: then nothing is known.
    """

    operations: tuple[OperationWithoutHook, ...]
    is_exact: bool = True
    is_looked_for: bool = True


async def find_operations_without_hook(actions: Actions, user: User) -> OperationsWithoutHook:
    """The operations that cannot be reconciled here, in the scopes that exist for a user.

    Raises:
        Refused: the user may not list records, or the store did not answer.
    """
    actions.demand(user, Permission.LIST)
    engine = engine_of(actions.semel)
    if Capability.COUNT not in engine.store.capabilities:
        return OperationsWithoutHook((), is_exact=False, is_looked_for=False)
    with_hook = {name for name, one in engine.known.items() if one.policy.reconcile is not None}
    waiting: dict[str, list[StoredRecord]] = {}
    looked_at, is_exact = 0, True
    for scope in actions.scopes_asked(user, None):
        cursor: tuple[int, bytes] | None = None
        while looked_at < MOST:
            page: Page = await actions.perform(_scan(scope, cursor))
            looked_at += len(page.records)
            _collect(page.records, with_hook, waiting)
            cursor = page.cursor
            if cursor is None:
                break
        else:
            is_exact = False
    found = (_sum_up(operation, records) for operation, records in sorted(waiting.items()))
    return OperationsWithoutHook(tuple(found), is_exact)


def _scan(scope: str | None, cursor: tuple[int, bytes] | None) -> Flow[Any]:
    return (yield from ask(Scan(Query(status=Status.IN_DOUBT, scope=scope), cursor, _PAGE)))


def _collect(records: Iterable[StoredRecord], with_hook: set[str], waiting: dict[str, list[StoredRecord]]) -> None:
    for record in records:
        operation = record.key.operation
        if record.in_doubt_policy == "reconcile" and operation not in with_hook:
            waiting.setdefault(operation, []).append(record)


def _sum_up(operation: str, records: list[StoredRecord]) -> OperationWithoutHook:
    oldest = min(records, key=lambda record: record.updated_us)
    return OperationWithoutHook(operation, len(records), instant(oldest.updated_us), oldest.reference, oldest.key.scope)
