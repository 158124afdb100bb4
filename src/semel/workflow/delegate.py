"""A delegate: what a task of a process does, declared so that its effect happens once in any workflow engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, Unpack, cast, overload

from semel.api import AsyncSemel, Semel
from semel.core.key import SHARED, Key
from semel.core.policy import Policy, PolicyFields
from semel.core.record import About
from semel.engine.async_engine import AsyncAttempt, AsyncEngine
from semel.engine.clock import Backoff
from semel.engine.decorator import call_spec_of, check_async_function, check_sync_function, name_of, operation_name
from semel.engine.engine import RegisteredOperation, engine_of
from semel.engine.sync_engine import Attempt
from semel.errors import UsageError
from semel.workflow.ends import BpmnError, End, RecordedBpmnError
from semel.workflow.inputs import ALL, BUSINESS_KEY, OWN, Inputs, inputs_of
from semel.workflow.outputs import checked_outputs, output_names, refuse_shared_names
from semel.workflow.reads import names_read_by, names_read_in
from semel.workflow.task import NameRule, Place, Task, Work, check_names
from semel.workflow.tasks import AsyncTasks, SyncTasks

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    S = TypeVarWithDefault("S", Semel, AsyncSemel, default=AsyncSemel)
else:
    S = TypeVar("S", Semel, AsyncSemel)

KEEP_FOR: Final = timedelta(days=7)
VALUE: Final = "value"


class Delegate(Generic[S]):
    """What a task of a process does, once for its key. Derive from it, and make one object of it for an engine.

    The class says what is done, and may set any field of `Policy`; `keep_for` is 7 days where it does not, and
    `when_running` is "reject". Of an `AsyncSemel`, `execute` and `compensate` are coroutine functions, and `run` is
    awaited.

    Attributes:
        operation: what is done; part of the identity. By default where the class lives.
        version: the first part of the key; another version makes other keys, so that a task can be done anew.
        key: names of variables that make the task this one, or a method that gets all variables. Never the process
            instance: a second start of the process would be a second effect.
        scope: for whom: names, a method, or `SHARED`.
        ignore: inputs that are not compared.
        errors: errors of the function that are business errors, with their codes.
        backoff: how long to wait between two attempts.

    Args:
        semel: the engine.

    Raises:
        UsageError: the function is of the wrong kind for it, or something about it could not be kept.
    """

    operation: ClassVar[str | None] = None
    version: ClassVar[str] = "V1"
    key: Any = ()
    scope: Any = SHARED
    ignore: ClassVar[tuple[str, ...]] = ()
    errors: ClassVar[Mapping[type[Exception], str]] = {}
    backoff: ClassVar[Backoff] = Backoff()
    execute: Any = None
    compensate: Any = None
    _inputs: ClassVar[Inputs]
    _output_names: ClassVar[frozenset[str]]

    def __init_subclass__(cls, **settings: Any) -> None:
        """Refuse, when the class is made, what could not be kept later."""
        super().__init_subclass__(**settings)
        if cls.execute is None:
            return  # what several delegates share
        function = _plain_function(cls, "execute")
        cls._inputs = inputs_of(function, given=_first(cls, "execute"))
        cls._output_names = output_names(_plain_function(cls, "outputs"))
        check_names("key", cls.key)
        if cls.scope is not SHARED:
            check_names("scope", cls.scope)
        _check_errors(cls)
        named = cls._inputs.names | set(_key_names(cls))
        named |= {name for rule in _rules(cls) for name in names_read_in(rule)}
        refuse_shared_names(_plain_function(cls, "outputs"), cls._output_names, frozenset(named))

    def __init__(self, semel: S) -> None:
        if self.execute is None:
            raise UsageError(f"{type(self).__name__} has no execute(), so there is nothing to run.")
        engine = engine_of(semel)
        self.semel: S = semel
        self.is_async = isinstance(engine, AsyncEngine)
        self._task = self._bind(engine)
        self.policy: Policy = self._task.policy
        self._tasks: Any = (
            AsyncTasks(engine, self._task)
            if isinstance(engine, AsyncEngine)
            else SyncTasks(cast("Any", engine), self._task)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._task.execution.spec.operation!r})"

    def outputs(self, value: Any, v: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002 - for those who override it
        """What the process gets; also asked on a replay, so it has no effects. `v` are the variables."""
        return {}

    def about(self, v: Mapping[str, Any]) -> About | Mapping[str, Any] | None:  # noqa: ARG002 - for those who override it
        """What people search by, beside process instance, business key and activity."""
        return None

    @overload
    def run(
        self: Delegate[AsyncSemel],
        variables: Mapping[str, Any],
        *,
        instance: str | None = None,
        activity: str | None = None,
        business_key: str | None = None,
    ) -> Awaitable[End]: ...

    @overload
    def run(
        self: Delegate[Semel],
        variables: Mapping[str, Any],
        *,
        instance: str | None = None,
        activity: str | None = None,
        business_key: str | None = None,
    ) -> End: ...

    def run(
        self,
        variables: Mapping[str, Any],
        *,
        instance: str | None = None,
        activity: str | None = None,
        business_key: str | None = None,
    ) -> Any:
        """Run the task once, and say how it ended.

        Args:
            variables: those of the process.
            instance: which process; searched by, and part of no key.
            activity: which task of it; goes into the tags.
            business_key: searched by; by default the variable `businessKey`.

        Raises:
            UsageError: the program or the process has to be changed: a variable is missing or not as annotated, or this
                is the code of a workflow. Nothing ran.
        """
        return self._tasks.run(variables, Place(instance, activity, business_key))

    @overload
    def run_compensation(
        self: Delegate[AsyncSemel],
        variables: Mapping[str, Any],
        *,
        instance: str | None = None,
        activity: str | None = None,
        business_key: str | None = None,
    ) -> Awaitable[End]: ...

    @overload
    def run_compensation(
        self: Delegate[Semel],
        variables: Mapping[str, Any],
        *,
        instance: str | None = None,
        activity: str | None = None,
        business_key: str | None = None,
    ) -> End: ...

    def run_compensation(
        self,
        variables: Mapping[str, Any],
        *,
        instance: str | None = None,
        activity: str | None = None,
        business_key: str | None = None,
    ) -> Any:
        """Undo the task once, if it was done; from then on a duplicate of it is `BpmnError("COMPENSATED")`.

        Where it never ran, or failed, nothing runs; while it runs the answer is `Retry`, and in doubt `Incident`.

        Raises:
            UsageError: there is no `compensate`, or as for `run`.
        """
        return self._tasks.compensate(variables, Place(instance, activity, business_key))

    @property
    def compensation(self) -> Compensation[S]:
        """What an engine is given for the task that undoes this one: its `run` is `run_compensation`."""
        return Compensation(self)

    def identify(self, variables: Mapping[str, Any]) -> Key:
        """The key that a run with these variables has."""
        return self._task.identify(variables)

    def _bind(self, engine: Any) -> Task:
        operation = operation_name(type(self), self.operation)
        fields = cast("PolicyFields", self._policy_fields())
        declared: Policy = engine.policy_for(operation, None, fields)
        policy = declared.replace(final_errors=(*declared.final_errors, RecordedBpmnError))
        execution = self._work(engine, operation, self.execute, self._inputs, policy)
        compensation = None
        if self.compensate is not None:
            inputs = inputs_of(self.compensate, given=(VALUE,))
            compensation = self._work(engine, operation, self.compensate, inputs, _for_compensation(policy))
        spec = execution.spec
        engine.known[operation] = RegisteredOperation(policy, spec.shape, spec.terms)
        return Task(
            version=self.version,
            key=self.key,
            scope=self.scope,
            errors=self.errors,
            backoff=self.backoff,
            policy=policy,
            outputs=self._checked_outputs,
            about=self.about,
            execution=execution,
            compensation=compensation,
        )

    def _policy_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"keep_for": KEEP_FOR, "when_running": "reject"}
        fields |= {name: getattr(self, name) for name in PolicyFields.__annotations__ if hasattr(self, name)}
        return fields

    def _work(self, engine: Any, operation: str, function: Any, inputs: Inputs, policy: Policy) -> Work:
        (check_async_function if self.is_async else check_sync_function)(function)
        left_out = {*_key_names(type(self)), *self.ignore}
        is_all = inputs.takes_all
        taken = {*inputs.names, ALL} if is_all else inputs.names
        unknown = [name for name in self.ignore if not is_all and name not in self._inputs.names]
        if unknown:
            raise UsageError(f"ignore names {unknown[0]!r}, which is no input of {name_of(function)}; nothing ran.")
        compared: Any = tuple(sorted(name for name in taken if name not in left_out))
        if is_all:
            compared = _fingerprint_of_all(left_out | OWN | {BUSINESS_KEY} | self._output_names)
        spec = call_spec_of(
            function,
            key=lambda **_: (self.version,),
            scope=SHARED,
            operation=operation,
            ignore=(),
            about=None,
            policy=policy,
            fingerprint=compared,
            secrets=engine.secrets,
            attempt_class=AsyncAttempt if self.is_async else Attempt,
        )
        return Work(function, inputs, spec)

    def _checked_outputs(self, value: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
        inputs = self._inputs.names | set(_key_names(type(self)))
        inputs |= {name for rule in _rules(self) for name in names_read_by(rule, variables)}
        return checked_outputs(self.outputs, self.outputs(value, variables), frozenset(inputs))


class Compensation(Generic[S]):
    """The compensation of a delegate, which an adapter runs like a delegate."""

    def __init__(self, delegate: Delegate[S]) -> None:
        self.semel: S = delegate.semel
        self.is_async = delegate.is_async
        self.policy = delegate.policy
        self.run: Callable[..., Any] = delegate.run_compensation
        self._of = repr(delegate)

    def __repr__(self) -> str:
        return f"Compensation({self._of})"


def delegate(
    semel: S,
    *,
    key: NameRule,
    operation: str | None = None,
    version: str = "V1",
    scope: Any = SHARED,
    ignore: tuple[str, ...] = (),
    errors: Mapping[type[Exception], str] | None = None,
    backoff: Backoff | None = None,
    outputs: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] | None = None,
    about: Callable[[Mapping[str, Any]], About | Mapping[str, Any] | None] | None = None,
    compensate: Callable[..., Any] | None = None,
    **policy: Unpack[PolicyFields],
) -> Callable[[Callable[..., Any]], Delegate[S]]:
    """Decorate a function that becomes the `execute` of a delegate; the arguments are what the class would say.

    Raises:
        UsageError: something about the function could not be kept; at decoration.
    """
    given: dict[str, Any] = {
        "version": version,
        "key": key,
        "scope": scope,
        "ignore": ignore,
        "errors": errors or {},
        "outputs": outputs,
        "about": about,
        "compensate": compensate,
        **policy,
    }
    body = {name: staticmethod(rule) if callable(rule) else rule for name, rule in given.items() if rule is not None}
    body |= {} if backoff is None else {"backoff": backoff}

    def decorate(function: Callable[..., Any]) -> Delegate[S]:
        engine_of(semel).policy_of(None, policy)  # what is wrong with it is said before a class is made
        members = {**body, "operation": operation_name(function, operation), "execute": staticmethod(function)}
        members |= {"__module__": function.__module__, "__doc__": function.__doc__, "__qualname__": name_of(function)}
        made: type[Delegate[S]] = type(function.__name__, (Delegate,), members)
        return made(semel)

    return decorate


def _first(cls: type, name: str) -> tuple[str, ...]:
    """The parameter that is the object itself, where there is one."""
    return () if isinstance(_declared(cls, name), staticmethod | classmethod) else ("self",)


def _declared(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _plain_function(cls: type, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(cls, name)
    if not callable(found):
        raise UsageError(f"{name} of {cls.__name__} is a function, not {found!r:.80}; nothing was made.")
    return found


def _key_names(cls: type[Delegate[Any]]) -> tuple[str, ...]:
    """Variables that are wholly part of key or scope, and so of no fingerprint."""
    scope = () if cls.scope is SHARED else check_names("scope", cls.scope)
    return (*check_names("key", cls.key), *scope)


def _rules(of: Any) -> list[Callable[..., Any]]:
    """The methods, of a class or an object, that give key and scope."""
    return [rule for rule in (of.key, of.scope) if callable(rule)]


def _check_errors(cls: type[Delegate[Any]]) -> None:
    for kind, code in cls.errors.items():
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, BpmnError):
            raise UsageError(f"errors maps classes of exceptions to codes, and {kind!r:.80} is none; nothing was made.")
        BpmnError(code)  # what is wrong with a code is said before anything runs


def _fingerprint_of_all(left_out: frozenset[str] | set[str]) -> Callable[..., Any]:
    def compared(v: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in v.items() if name not in left_out}

    return compared


def _for_compensation(policy: Policy) -> Policy:
    """The policy of a compensation: a hook that knows whether the task happened cannot tell whether it was undone.

    A record keeps the policy of its owner, so sweeps, which know the operation alone, do not ask the hook either.
    """
    return policy if policy.reconcile is None else policy.replace(in_doubt="hold", reconcile=None)
