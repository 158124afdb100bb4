"""One kind of task, as a delegate declares it: its key, its inputs, its errors, and what its ends mean to an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from semel.core.key import SHARED, Key
from semel.core.policy import Policy
from semel.core.record import About, StoredRecord, instant
from semel.engine.call_flow import Request
from semel.engine.clock import Backoff
from semel.engine.decorator import CallSpec
from semel.errors import (
    FailedBefore,
    InDoubt,
    KeyMissing,
    KeyReused,
    LeaseLost,
    ResultNotKept,
    SemelError,
    StoreUnavailable,
    TryLater,
    UsageError,
)
from semel.workflow.ends import KEY_REUSED, BpmnError, End, Incident, RecordedBpmnError, Retry, recorded_error
from semel.workflow.inputs import BUSINESS_KEY, Inputs

COMPENSATE: Final = "compensate"
"""The first part of the key of a compensation."""
_SHOWN: Final = 100
"""Characters of the original's key that people see in that of its compensation, which has to stay within a limit."""

NameRule = str | tuple[str, ...] | Callable[[Mapping[str, Any]], Any]
"""Names of variables, or a callable that gets all of them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a process a task stands. Nothing of it takes part in the key."""

    instance: str | None = None
    activity: str | None = None
    business_key: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What a task does: a function, what it takes, and how its calls are asked for."""

    function: Callable[..., Any]
    inputs: Inputs
    spec: CallSpec

    def call(self, attempt: Any, arguments: Mapping[str, Any]) -> Any:
        """Call the function, with its attempt if it asks for it."""
        parameter = self.spec.attempt
        if parameter is None:
            return self.function(**arguments)
        return self.function(**arguments, **{parameter.name: attempt})


@dataclass(frozen=True, slots=True)
class Task:
    """What a delegate declares, bound to an engine's settings."""

    version: str
    key: NameRule
    scope: Any
    errors: Mapping[type[Exception], str]
    backoff: Backoff
    policy: Policy
    outputs: Callable[[Any, Mapping[str, Any]], dict[str, Any]]
    about: Callable[[Mapping[str, Any]], About | Mapping[str, Any] | None]
    execution: Work
    compensation: Work | None

    def identify(self, variables: Mapping[str, Any]) -> Key:
        """The key of a task: its version and its parts.

        Raises:
            KeyMissing: a part is missing.
        """
        known = {**variables, **self._decoded_parts(variables)}
        parts = _values("key", self.key, known)
        return Key.of((self.version, *parts), operation=self.execution.spec.operation, scope=self._scope(known))

    def identify_compensation(self, variables: Mapping[str, Any], original: StoredRecord) -> Key:
        """The key of what undoes this very life of a task: one that is done anew after its record can be undone anew.

        No task has it, whatever its key method gives, because the digest of the original is a part of it.
        """
        known = {**variables, **self._decoded_parts(variables)}
        key = original.key
        parts = (COMPENSATE, key.value[:_SHOWN], instant(original.created_us), key.reference)
        return Key.of(parts, operation=key.operation, scope=self._scope(known))

    def _scope(self, known: Mapping[str, Any]) -> Any:
        if self.scope is SHARED:
            return SHARED
        scope = _values("scope", self.scope, known)
        return scope[0] if len(scope) == 1 and isinstance(scope[0], str) else scope  # as every other door has it

    def _decoded_parts(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs that key and scope may name, as annotated: 1500 and "1500.00" are one amount."""
        named = {*_names(self.key), *_names(self.scope)}
        inputs = self.execution.inputs.inputs
        given = [item for item in inputs if item.name in named and item.is_given(variables)]
        return {item.name: item.decode(variables) for item in given}

    def request(
        self, work: Work, key: Key, variables: Mapping[str, Any], place: Place, tags: Mapping[str, str]
    ) -> tuple[Request, dict[str, Any]]:
        """What one run asks for, and what its function is called with.

        Raises:
            UsageError: a variable is missing or is not what its annotation says.
        """
        arguments = work.inputs.decode(variables)
        return work.spec.request_under(key, self._about(variables, place, tags), arguments), arguments

    def _about(self, variables: Mapping[str, Any], place: Place, tags: Mapping[str, str]) -> About:
        own = About.of(self.about(variables))
        business_key = place.business_key if place.business_key is not None else variables.get(BUSINESS_KEY)
        activity = {} if place.activity is None else {"activity": str(place.activity)}
        return About.of(
            About(
                subject=own.subject,
                business_key=own.business_key or (None if business_key is None else str(business_key)),
                process_instance=own.process_instance or (None if place.instance is None else str(place.instance)),
                requester=own.requester,
                tags={**activity, **own.tags, **tags},
            )
        )

    def translate(self, error: Exception) -> Exception:
        """What is recorded for an error: a business error with its code, or the error itself."""
        if isinstance(error, BpmnError):
            return RecordedBpmnError(error)
        code = next((self.errors[kind] for kind in type(error).__mro__ if kind in self.errors), None)
        return error if code is None else RecordedBpmnError(BpmnError(code, str(error)))

    def after_failure(self, work: Work, error: Exception, reference: str, number: int) -> End:
        """What an error of the function means, which is recorded by now."""
        if isinstance(error, RecordedBpmnError):
            return error.error
        policy, reason = work.spec.policy, f"{type(error).__name__}: {error!s:.200}"
        had_no_effect = isinstance(error, policy.retry_errors)
        is_last = policy.max_attempts is not None and number >= policy.max_attempts
        if isinstance(error, policy.final_errors) or (is_last and (had_no_effect or policy.in_doubt == "rerun")):
            return Incident(reference, f"It failed for good: {reason}")
        if had_no_effect or policy.in_doubt == "rerun":
            return Retry(self._wait(error, number), counts=True, reason=reason)
        if policy.in_doubt == "hold":
            return Incident(reference, f"It may have happened: {reason}")
        return Retry(max(self._wait(error, number), policy.reconcile_after), counts=True, reason=reason)

    def explain(self, error: SemelError, reference: str) -> End:
        """What an answer of the engine means for the task; what has to be changed in the program is raised."""
        match error:
            case FailedBefore():
                return recorded_error(error) or Incident(reference, error.message)
            case KeyReused():
                return BpmnError(KEY_REUSED, error.message)
            case InDoubt(retry_after=None) | ResultNotKept():
                return Incident(reference, error.message)
            case StoreUnavailable(conflict=False, retry_after=after):
                return Retry(after, counts=False, reason=error.message, no_store=True)
            case InDoubt(retry_after=timedelta() as after) | TryLater(retry_after=after):
                return Retry(after, counts=False, reason=error.message)
            case LeaseLost():
                return Retry(self.policy.lease_for, counts=False, reason=error.message)
        raise error

    def _wait(self, error: Exception, number: int) -> timedelta:
        own = getattr(error, "retry_after", None)
        if isinstance(own, timedelta) and own >= timedelta():
            return own
        return self.backoff.after(number)


def _names(rule: Any) -> tuple[str, ...]:
    if isinstance(rule, str):
        return (rule,)
    return rule if isinstance(rule, tuple) else ()


def _values(what: str, rule: NameRule, variables: Mapping[str, Any]) -> tuple[Any, ...]:
    if callable(rule):
        given = rule(variables)
        values = given if isinstance(given, tuple) else (given,)
        missing = [str(place) for place, value in enumerate(values, 1) if value is None]
    else:
        values = tuple(variables.get(name) for name in _names(rule))
        missing = [name for name, value in zip(_names(rule), values, strict=True) if value is None]
    if missing or not values:
        raise KeyMissing(f"A part of the {what} is missing: {', '.join(missing) or 'all of them'}; nothing ran.")
    return values


def check_names(what: str, rule: Any) -> tuple[str, ...]:
    """The names of variables that a rule gives; none where a callable is to say.

    Raises:
        UsageError: it is neither.
    """
    if callable(rule):
        return ()
    names = _names(rule)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise UsageError(
            f"{what} is the name of a variable, a tuple of names, or a method that gets the variables, "
            f"not {rule!r:.80}; nothing ran."
        )
    return names
