"""The policy: frozen settings of one operation, checked once, when it is made.

- How long a claim is leased and how long an outcome is kept are two settings.
- Durations are positive and finite, words are known words, and `reconcile` always comes with a hook.
- What a settings file declares of an operation wins over the code; what it says of all declared ones does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from semel.core.key import is_internal
from semel.errors import PolicyInvalid, SemelError, UsageError
from semel.validation import Duration, refuses_unknown, to_timedelta

Doubt = Literal["rerun", "reconcile", "hold"]
WhenRunning = Literal["wait", "reject"]
StoreDown = Literal["refuse", "run"]
Errors = tuple[type[BaseException], ...]

_WORDS = {
    "when_running": ("wait", "reject"),
    "in_doubt": ("rerun", "reconcile", "hold"),
    "store_down": ("refuse", "run"),
}
_MICROSECOND = timedelta(microseconds=1)


def microseconds(duration: timedelta) -> int:
    """A duration in the unit that stores count in."""
    return duration // _MICROSECOND


@refuses_unknown("A policy", PolicyInvalid)
@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one operation is claimed, kept, waited for and recovered. A number stands for so many seconds.

    Args:
        keep_for: how long an outcome is replayed, counted from the claim (from the end, where the run itself took
            more than half of it).
        lease_for: how long a claim lasts without renewal; a crashed owner blocks its key this long.
        max_runtime: renewal stops after this, so that a wedged handler does not hold its key for ever.
        when_running: what a duplicate does while the first runs.
        wait_for: how long a duplicate waits.
        final_errors: raised means "settled, this is the answer": stored and replayed.
        retry_errors: raised means "nothing happened": the key may be claimed again at once.
        max_attempts: after so many attempts the failure is final.
        in_doubt: what to do when it started and no outcome is known.
        reconcile: asked with the attempt, answers `Happened(value)`, `DidNotHappen()` or `Unknown()`.
        reconcile_after: how long after the lease ended the hook may be asked, at the earliest.
        store_down: whether to refuse or to run unprotected when the store does not answer.
        max_result: a larger encoded result is not kept; duplicates get `ResultNotKept`.
        redact: paths to members of results and step values that are stored as "[redacted]", such as `"card.number"`,
            with `*` for every element or member; the first caller gets them, a replay does not.
    """

    keep_for: timedelta = timedelta(hours=24)
    lease_for: timedelta = timedelta(seconds=30)
    max_runtime: timedelta = timedelta(minutes=15)
    when_running: WhenRunning = "wait"
    wait_for: timedelta = timedelta(seconds=10)
    final_errors: Errors = ()
    retry_errors: Errors = ()
    max_attempts: int | None = None
    in_doubt: Doubt = "rerun"
    reconcile: Callable[[Any], Any] | None = None
    reconcile_after: timedelta = timedelta(seconds=30)
    store_down: StoreDown = "refuse"
    max_result: int = 1024 * 1024
    redact: tuple[str, ...] = ()

    if TYPE_CHECKING:

        def __init__(self, **given: Unpack[PolicyFields]) -> None: ...

    def __post_init__(self) -> None:
        for name in ("keep_for", "lease_for", "max_runtime", "wait_for", "reconcile_after"):
            given, may_be_zero = getattr(self, name), name in ("wait_for", "reconcile_after")
            object.__setattr__(self, name, to_timedelta(name, given, may_be_zero=may_be_zero, error=PolicyInvalid))
        for name, words in _WORDS.items():
            _word(name, getattr(self, name), words)
        _errors(self, "final_errors")
        _errors(self, "retry_errors")
        _either_or(self)
        _count("max_attempts", self.max_attempts, optional=True)
        _count("max_result", self.max_result, optional=False)
        _hook(self)
        _paths(self)

    def replace(self, **changes: Unpack[PolicyFields]) -> Policy:
        """A copy with `changes`, checked again."""
        if not changes:
            return self
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # what is given is checked again


class PolicyFields(TypedDict, total=False):
    """The fields of a policy, as they may be given one by one."""

    keep_for: Duration
    lease_for: Duration
    max_runtime: Duration
    when_running: WhenRunning
    wait_for: Duration
    final_errors: Errors
    retry_errors: Errors
    max_attempts: int | None
    in_doubt: Doubt
    reconcile: Callable[[Any], Any] | None
    reconcile_after: Duration
    store_down: StoreDown
    max_result: int
    redact: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredOperations:
    """What a settings file says of operations.

    Args:
        declared: for each declared operation the fields of its policy that are set.
        common: fields for every declared operation that neither its own table nor the code sets.
        strict: whether an operation that is not declared is refused, unless it is one of semel's own.
    """

    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    common: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False

    def policy(self, operation: str, own: Policy, default: Policy, named: Collection[str] = ()) -> Policy:
        """The policy of an operation, with what is declared of it.

        Args:
            operation: its name.
            own: the policy that the code gives it.
            default: the policy of operations whose code sets nothing; a field of `own` that differs is set by the code.
            named: further fields that the code sets, whatever their value is.

        Raises:
            UsageError: the file is strict, and does not declare this operation.
            PolicyInvalid: the code and the file together give a policy that cannot be kept.
        """
        if is_internal(operation):
            return own  # what semel does for itself, such as to claim a page of a batch, is not for a file to set
        changes = self.declared.get(operation)
        if changes is None:
            if self.strict:
                message = (
                    f"The operation {operation!r} is not declared; nothing ran. Give it a table "
                    f'[operations."{operation}"] in the settings file, or set strict = false there.'
                )
                raise UsageError(message)
            return own
        common = {
            name: value
            for name, value in self.common.items()
            if name not in named and getattr(own, name) == getattr(default, name)
        }
        settled: dict[str, Any] = {**common, **changes}
        if settled.get("in_doubt", "reconcile") != "reconcile":
            settled["reconcile"] = None  # the hook of the code is not asked under another way of ending a doubt
        return own.replace(**settled)

    def kept_for(self, operation: str, own: timedelta) -> timedelta:
        """How long what is kept of an operation stays: as is declared of it, or else as the code says."""
        declared: timedelta = self.declared.get(operation, {}).get("keep_for", own)
        return declared


def _word(name: str, value: object, words: tuple[str, ...]) -> None:
    if value not in words:
        message = f"{name} must be one of {', '.join(words)}, not {value!r}; nothing ran."
        raise PolicyInvalid(message)


def _errors(policy: Policy, name: str) -> None:
    given = getattr(policy, name)
    classes = tuple(given) if isinstance(given, (tuple, list, set, frozenset)) else (given,)
    for error in classes:
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            message = f"{name} must hold exception classes, not {error!r}; nothing ran."
            raise PolicyInvalid(message)
        if not issubclass(error, Exception):
            message = (
                f"{name} cannot contain {error.__name__}: after an interrupt it is unknown whether the effect "
                f"happened; nothing ran."
            )
            raise PolicyInvalid(message)
        if issubclass(error, SemelError):
            message = f"{name} cannot contain semel's own {error.__name__}, which the effect never raises; nothing ran."
            raise PolicyInvalid(message)
    object.__setattr__(policy, name, classes)


def _either_or(policy: Policy) -> None:
    for error in policy.final_errors:
        if error in policy.retry_errors:
            message = f"{error.__name__} is both in final_errors and in retry_errors; nothing ran. Choose one."
            raise PolicyInvalid(message)


def _count(name: str, value: object, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        message = f"{name} must be a whole number from 1 up, not {value!r}; nothing ran."
        raise PolicyInvalid(message)


def _hook(policy: Policy) -> None:
    if policy.in_doubt == "reconcile" and policy.reconcile is None:
        message = 'in_doubt="reconcile" needs reconcile=, the hook that is asked whether it happened; nothing ran.'
        raise PolicyInvalid(message)
    hook: object = policy.reconcile
    if hook is not None and not callable(hook):
        message = f"reconcile must be callable, not {type(hook).__name__}; nothing ran."
        raise PolicyInvalid(message)
    if policy.reconcile is not None and policy.in_doubt != "reconcile":
        message = f'reconcile= is only asked under in_doubt="reconcile", and this is "{policy.in_doubt}"; nothing ran.'
        raise PolicyInvalid(message)


def _paths(policy: Policy) -> None:
    given: object = policy.redact
    if not isinstance(given, (tuple, list)):
        message = f'redact takes several paths, as in ("card.number",), not {given!r}; nothing ran.'
        raise PolicyInvalid(message)
    for path in given:
        if (
            not isinstance(path, str)
            or not all(path.split("."))
            or any(part != part.strip() for part in path.split("."))
        ):
            message = f'redact takes paths such as "card.number" or "items.*.pan", not {path!r}; nothing ran.'
            raise PolicyInvalid(message)
    object.__setattr__(policy, "redact", tuple(given))
