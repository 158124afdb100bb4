"""A store whose keys were not given, in front of one that may be sealed: a command is often told a database alone.

- What is sealed is answered as where a key is lost: it says which one, and nothing runs again.
- What would be stored is refused where others seal it. Whether they do is told by the records that were made last.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from semel.core.batch.values import BATCH
from semel.core.operations import Answer, Claim, Operation, Page, Query, Scan
from semel.core.record import StoredRecord
from semel.core.sealing.values import is_sealed, key_id_of, missing_key_error, sealed_text, unpack_sealed
from semel.core.store import Capability, Plan, Store
from semel.errors import UsageError
from semel.stores.sealing.answers import open_answer
from semel.stores.sealing.operations import seal_operation
from semel.stores.sealing.store import SealedStore

_LOOKED_AT: Final = 50


class KeylessStore(SealedStore):
    """Opens nothing of what `store` keeps sealed, and writes nothing unsealed beside it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, _NO_KEYS)
        self._is_plain = Capability.COUNT not in store.capabilities  # such a store would read all records to tell

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands of the store behind, for all that need no key."""
        key_id = None
        if not (self._is_plain or joined) and any(map(_has_content, operations)):
            key_id = yield from self._find_key()
        passed = [one for one in operations if key_id is None or not _has_content(one)]
        answers = iter((yield from self._store.plan(passed, joined=joined)) if passed else [])
        return [
            _refusal(key_id)
            if key_id is not None and _has_content(operation)
            else open_answer(_NO_KEYS, operation, next(answers))
            for operation in operations
        ]

    def _find_key(self) -> Generator[Any, Any, str | None]:
        """The key that others seal with; None: nothing that was made lately is sealed."""
        newest = Scan(Query(newest_first=True), None, _LOOKED_AT)
        (answer,) = yield from self._store.plan([newest], joined=False)
        records = answer.records if isinstance(answer, Page) else ()
        found = [key_id for record in records for key_id in _keys_of(record)]
        self._is_plain = bool(found) and not any(found)
        return next(filter(None, found), None)


def _keys_of(record: StoredRecord) -> list[str | None]:
    """The keys of what a record keeps; None for each that is not sealed."""
    kept = [step.outcome for step in record.steps]
    if record.outcome is not None:
        kept.append(record.outcome)
    if record.error is not None:
        kept.append(sealed_text(record.error) or b"")
    return [key_id_of(one) if is_sealed(one) else None for one in kept]


def _has_content(operation: Operation) -> bool:
    """Whether something of an operation would be sealed; who claims the loading of a batch is going to add items."""
    if isinstance(operation, Claim):
        return operation.key.operation == BATCH
    try:
        seal_operation(_NO_KEYS, operation)
    except _NothingSealsError:
        return True
    return False


def _refusal(key_id: str) -> Answer | Exception:
    return UsageError(
        f"What is kept here is sealed with the key {key_id!r}, and no key is known here to seal with; nothing was "
        f"changed. Name the settings file whose [security] has the keys, and not the database.",
        key_id=key_id,
    )


class _NothingSealsError(Exception):
    """There is no key to seal with."""


class _NoKeys:
    """Stands where a keyring would."""

    active: Final = ""
    accepts_plain: Final = True

    def seal(self, subject: bytes, field: bytes, plain: bytes, *, repeatable: bool = False) -> bytes:
        """Nothing.

        Raises:
            _NothingSealsError: always.
        """
        del subject, field, plain, repeatable
        raise _NothingSealsError

    def open(self, subject: bytes, field: bytes, sealed: bytes) -> bytes:
        """Nothing.

        Raises:
            RecordUnreadable: always.
        """
        del subject, field
        key_id, _ = unpack_sealed(sealed)
        raise missing_key_error(key_id, "and no keys were given")


_NO_KEYS: Final = _NoKeys()
