"""Every error semel raises, in one tree. Branches say who must act; each message says whether anything ran.

    SemelError
    ├── UsageError                  the calling code has to change
    │   ├── KeyMissing              no key, or no scope, was given
    │   ├── KeyInvalid              the key is empty, too long, or of a kind that cannot be a key
    │   │   └── KeyExpired          the signed key was right, and is too old
    │   ├── KeyReused               the same key was used for something else
    │   ├── KeyReentered            a handler asked for the very key it is running
    │   ├── NotInTransaction        `within` without an open transaction of the store's database
    │   ├── StepsChanged            the steps of this attempt are not those of the attempt before
    │   ├── PolicyInvalid           a policy that cannot be kept
    │   ├── EventInvalid            what arrived is no event, or has no identity
    │   ├── BatchInvalid            items that cannot be loaded; `problems` has every one of them
    │   ├── BatchChanged            a batch of that id has other items, or another operation
    │   ├── NotResolvable           `resolve` on a record that is not in doubt
    │   ├── RecordNotFound          there is no record under that key
    │   └── DependencyMissing       an optional package is not installed
    ├── TryLater                    the same call may succeed later; `retry_after` says in how long, a timedelta
    │   ├── InProgress              another caller runs this key now
    │   │   └── TooManyWaiting      the same, and nobody else may wait for others in this process
    │   ├── TooManyHandlers         as many handlers run in this process as may
    │   ├── StoreUnavailable        the store did not answer
    │   │   └── StoreMisconfigured  the store refuses its address or its login, until somebody changes that
    │   └── TransactionAborted      the caller's transaction is gone: run all of it again
    ├── FailedBefore                a stored failure, replayed
    ├── InDoubt                     it started and no outcome is known; `reference` names the record
    │   └── KeyTooOld               what was sent first is older than what the service keeps
    ├── LeaseLost                   this attempt is no longer the owner
    ├── ResultNotKept               it ran, but its value was not kept
    ├── RecordUnreadable            stored data this version cannot read
    ├── SchemaOutdated              database and library disagree about the schema
    └── ConcurrentModification      a row changed since it was read

Each class has a stable `code` for machines. HTTP status and exit code are mapped at the edge, not here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Final

_SOON: Final = timedelta(seconds=1)


class SemelError(Exception):
    """Root of the tree. `facts` become attributes, so that nothing has to be parsed out of the message."""

    code: ClassVar[str] = "semel"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        for name, fact in facts.items():
            setattr(self, name, fact)

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive the way through a process pool, attributes included."""
        return _rebuild, (type(self), self.message, self.facts)


def _rebuild(kind: type[SemelError], message: str, facts: dict[str, Any]) -> SemelError:
    return kind(message, **facts)


class UsageError(SemelError):
    """The calling code has to change; nothing ran."""

    code = "usage"


class KeyMissing(UsageError):
    """No key, or no scope, was given."""

    code = "key_missing"


class KeyInvalid(UsageError):
    """The key is empty, too long, or of a kind that cannot be a key."""

    code = "key_invalid"


class KeyExpired(KeyInvalid):
    """The signed key was right, and is too old."""

    code = "key_expired"


class KeyReused(UsageError):
    """The same key was used for something else."""

    code = "key_reused"


class KeyReentered(UsageError):
    """A handler asked for the very key it is running; waiting would never end."""

    code = "key_reentered"


class NotInTransaction(UsageError):
    """`within` needs an open transaction on the database that holds the records."""

    code = "not_in_transaction"


class StepsChanged(UsageError):
    """The steps of this attempt are not those of the attempt before."""

    code = "steps_changed"


class PolicyInvalid(UsageError):
    """A policy that cannot be kept."""

    code = "policy_invalid"


class EventInvalid(UsageError):
    """What arrived, or was to be sent, is no event: it cannot be read, or has no id, source or type."""

    code = "event_invalid"


class BatchInvalid(UsageError):
    """Items cannot be loaded; no item ran. `problems` are pairs of a line, or a place in the input, and what is wrong.

    At most a thousand of them are kept; `count` is how many there are.
    """

    code = "batch_invalid"

    def __init__(
        self, message: str, *, problems: tuple[tuple[int, str], ...] = (), count: int = 0, **facts: Any
    ) -> None:
        super().__init__(message, problems=problems, count=count, **facts)
        self.problems = problems
        self.count = count


class BatchChanged(UsageError):
    """A batch of that id was begun with other items, or for another operation; nothing ran.

    `differences` are the first ten, as texts.
    """

    code = "batch_changed"

    def __init__(self, message: str, *, differences: tuple[str, ...] = (), **facts: Any) -> None:
        super().__init__(message, differences=differences, **facts)
        self.differences = differences


class NotResolvable(UsageError):
    """There is nothing in doubt to resolve."""

    code = "not_resolvable"


class RecordNotFound(UsageError):
    """There is no record under that key, or it has expired."""

    code = "record_not_found"


class DependencyMissing(UsageError, ImportError):
    """An optional package is not installed, or cannot be loaded; nothing ran.

    `module` is the one that is missing, and `package` what to give to pip.
    """

    code = "dependency_missing"

    def __init__(self, message: str, *, module: str = "", package: str = "", **facts: Any) -> None:
        super().__init__(message, module=module, package=package, **facts)
        self.module = module
        self.package = package


class TryLater(SemelError):
    """The same call may succeed later."""

    code = "try_later"

    def __init__(self, message: str, *, retry_after: timedelta = _SOON, **facts: Any) -> None:
        super().__init__(message, retry_after=retry_after, **facts)
        self.retry_after = retry_after


class InProgress(TryLater):
    """Another caller runs this key now."""

    code = "in_progress"


class TooManyWaiting(InProgress):
    """Another caller runs this key, and as many callers of this process as may already wait for others."""

    code = "too_many_waiting"


class TooManyHandlers(TryLater):
    """As many handlers run in this process as its limits allow; nothing was claimed, and nothing ran."""

    code = "too_many_handlers"


class StoreUnavailable(TryLater):
    """The store did not answer. `ran` says whether the handler ran in this call.

    `asked` is false where the store was not even asked, because it did not answer others or too many wait for it.
    `conflict` is true where it did answer: somebody else was in the way, for this record or for a moment.
    """

    code = "store_unavailable"

    def __init__(
        self,
        message: str,
        *,
        retry_after: timedelta = _SOON,
        ran: bool = False,
        asked: bool = True,
        conflict: bool = False,
        **facts: Any,
    ) -> None:
        super().__init__(message, retry_after=retry_after, ran=ran, asked=asked, conflict=conflict, **facts)
        self.ran = ran
        self.asked = asked
        self.conflict = conflict


class StoreMisconfigured(StoreUnavailable):
    """The store refuses its address or its login: trying again is of no use before somebody changes one of the two.

    The password is wrong, the user, database or folder does not exist, or a permission is missing.
    """

    code = "store_misconfigured"


class TransactionAborted(TryLater):
    """The caller's transaction is gone; all of it has to be run again."""

    code = "transaction_aborted"


class FailedBefore(SemelError):
    """A stored failure, replayed; nothing ran now."""

    code = "failed_before"

    def __init__(self, message: str, *, error_type: str = "", error_message: str = "", **facts: Any) -> None:
        super().__init__(message, error_type=error_type, error_message=error_message, **facts)
        self.error_type = error_type
        self.error_message = error_message


class InDoubt(SemelError):
    """It started and no outcome is known."""

    code = "in_doubt"

    def __init__(self, message: str, *, reference: str, retry_after: timedelta | None = None, **facts: Any) -> None:
        super().__init__(message, reference=reference, retry_after=retry_after, **facts)
        self.reference = reference
        self.retry_after = retry_after


class KeyTooOld(InDoubt):
    """A request whose outcome is not known, first sent longer ago than the service remembers keys."""

    code = "key_too_old"


class LeaseLost(SemelError):
    """This attempt is no longer the owner; what it does is not recorded."""

    code = "lease_lost"


class ResultNotKept(SemelError):
    """It ran and is done, but its value was not kept; it will not run again."""

    code = "result_not_kept"


class RecordUnreadable(SemelError):
    """Stored data that cannot be read; nothing ran.

    A newer version wrote it, the key that it is sealed with is not at hand, or it was changed.
    """

    code = "record_unreadable"


class SchemaOutdated(SemelError):
    """Database and library disagree about the schema; nothing ran."""

    code = "schema_outdated"


class ConcurrentModification(SemelError):
    """A row changed since it was read; nothing was written.

    `expected` is the version the caller had read, None where there should have been no row; `found` is the version that
    is there, None where there is no row.
    """

    code = "concurrent_modification"

    def __init__(self, message: str, *, expected: int | None = None, found: int | None = None, **facts: Any) -> None:
        super().__init__(message, expected=expected, found=found, **facts)
        self.expected = expected
        self.found = found
