"""From a function and its arguments to a key and a fingerprint, without colour.

What always holds: everything is worked out at decoration; what could not be encoded, replayed or told apart later is
refused there. What is neither key, scope nor ignored is the fingerprint, unless `fingerprint=` says what is. An
argument that equals its default stays out of it, so that a parameter with a default may come and go.

Which colour a function has, and what is said to one of the wrong colour.

A function may ask for its attempt by a parameter that is annotated so. What always holds: callers never give it, it is
part of no key, scope or fingerprint, and the function gets the attempt that runs it or, where the policy lets it run
without a record, None.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from semel.core import codec
from semel.core.fingerprint import NO_SECRETS, Fingerprints, FixedFields, FixedFieldsWithoutDefaults, Secrets, why_not
from semel.core.key import SHARED, Key, Shared
from semel.core.operations import Terms
from semel.core.policy import Policy
from semel.core.record import NOTHING, About
from semel.engine.call_flow import Request, terms_of
from semel.engine.context import AttemptView
from semel.errors import KeyMissing, UsageError


def wrong_kind_error(function: Any, *, wanted: str) -> UsageError:
    """The error for a function of the other colour."""
    other = "AsyncSemel" if wanted == "def" else "Semel"
    return UsageError(
        f"{name_of(function)} must be written with {wanted!r} to be used here; nothing ran. "
        f"Use {other} for the other colour."
    )


def gave_wrong_kind_error(function: Any, value: Any, *, wanted: str) -> UsageError:
    """The error for a function whose colour shows only in what it gives; by then it was called."""
    other = "AsyncSemel" if wanted == "def" else "Semel"
    return UsageError(
        f"{name_of(function)} was called and gave a {type(value).__name__}; what it did "
        f"until then stands, and nothing more of it ran. Write it with {wanted!r}, or use {other} for the other colour."
    )


def is_async(function: Any) -> bool:
    """Whether calling `function` gives something to await."""
    target = inspect.unwrap(function)
    target = getattr(target, "func", target)
    called = getattr(type(target), "__call__", None)  # noqa: B004 - an object that can be called may be a coroutine function
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(called)


def is_plainly_sync(function: Any) -> bool:
    """Whether `function` is a plain `def` that does not say it gives something to await."""
    if is_async(function) or not inspect.isfunction(function) or function.__name__ == "<lambda>":
        return False
    declared = str(function.__annotations__.get("return", ""))
    return not any(word in declared for word in ("Awaitable", "Coroutine", "Future", "Task"))


def check_async_function(function: Any) -> None:
    """Refuse, at decoration, what is no coroutine function.

    Raises:
        UsageError: `function` gives nothing to await, or is a generator.
    """
    _refuse_generator(function)
    if not is_async(function):
        raise wrong_kind_error(function, wanted="async def")


def check_sync_function(function: Any) -> None:
    """Refuse, at decoration, what is no plain function.

    Raises:
        UsageError: `function` gives something to await, or is a generator.
    """
    if is_async(function):
        raise wrong_kind_error(function, wanted="def")
    _refuse_generator(function)


def check_async_handler(function: Any) -> None:
    """Refuse a handler that cannot give anything to await; what a lambda gives shows when it is called.

    Raises:
        UsageError: it is a plain function.
    """
    if is_plainly_sync(function):
        raise wrong_kind_error(function, wanted="async def")


def check_sync_handler(function: Any) -> None:
    """Refuse a handler that would have to be awaited.

    Raises:
        UsageError: it is a coroutine function.
    """
    if is_async(function):
        raise wrong_kind_error(function, wanted="def")


def async_call_function(function: Callable[[], Any]) -> Awaitable[Any]:
    """Call what must give something to await, and give that."""
    value: Awaitable[Any] = function()
    if not inspect.isawaitable(value):
        raise gave_wrong_kind_error(function, value, wanted="async def")
    return value


def sync_call_function(function: Callable[[], Any]) -> Any:
    """Call what must give its value, and not a coroutine."""
    value = function()
    if inspect.iscoroutine(value):
        value.close()
        raise gave_wrong_kind_error(function, value, wanted="def")
    return value


class HookWasCancelled(Exception):
    """What a reconcile hook waited for was cancelled, and nobody cancelled who asks it: an error of it alone."""

    def __init__(self) -> None:
        super().__init__("what the reconcile hook waited for was cancelled, and not who asked it")


@contextmanager
def _cancelled_alone() -> Iterator[None]:
    """Turns a cancellation inside that nobody asked for into an error.

    Of a client whose connection is gone: it would end a sweep, and the server that sweeps, without a word.

    Raises:
        HookWasCancelled: there was such a cancellation.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if is_cut_off():
            raise
        raise HookWasCancelled from error


def is_cut_off() -> bool:
    """Whether the task that is current is being cancelled; nobody cancels a thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return False
    return task is None or task.cancelling() > 0


async def async_call_hook(hook: Callable[[Any], Any], attempt: Any) -> Any:
    """Ask a reconcile hook, which may be a coroutine function or not."""
    with _cancelled_alone():
        verdict = hook(attempt)
        return await verdict if inspect.isawaitable(verdict) else verdict


@_cancelled_alone()
def sync_call_hook(hook: Callable[[Any], Any], attempt: Any) -> Any:
    """Ask a reconcile hook."""
    return hook(attempt)


def _refuse_generator(function: Any) -> None:
    """A generator has no result that could be replayed.

    Raises:
        UsageError: `function` is a generator function of either kind.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{name_of(function)} is a generator, which has no one result to replay; nothing ran. Return a list "
            f"instead."
        )


@dataclass(frozen=True, slots=True)
class AttemptParameter:
    """The parameter by which a function asks for its attempt.

    Attributes:
        name: its name.
        position: how many arguments by position may come before it; None where it is given by name only.
        may_be_none: whether the function can do without.
    """

    name: str
    position: int | None
    may_be_none: bool

    def refuse_given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], function: str) -> None:
        """Refuse a call that gives what semel gives.

        Raises:
            TypeError: the caller gives an attempt.
        """
        if self.name in kwargs or any(isinstance(argument, AttemptView) for argument in args):
            message = f"{function}() is given its attempt by semel: callers leave {self.name!r} out; nothing ran."
            raise TypeError(message)

    def call(self, function: Callable[..., Any], attempt: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function with the arguments of its caller and with its attempt."""
        if self.position is not None and len(args) > self.position:
            return function(*args[: self.position], attempt, *args[self.position :], **kwargs)
        return function(*args, **kwargs, **{self.name: attempt})


class HandlerWithAttempt:
    """A handler that is called with its attempt; `call` is the call that it is the handler of."""

    call: Any = None

    def __init__(self, parameter: AttemptParameter, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        self._parameter = parameter
        self._function = function
        self._args = args
        self._kwargs = kwargs

    def __call__(self) -> Any:
        """Call it; without a record there is no attempt."""
        attempt = self.call.attempt if self.call.active else None
        return self._parameter.call(self._function, attempt, self._args, self._kwargs)

    def __repr__(self) -> str:
        return name_of(self._function)


def name_of(function: Any) -> str:
    """How a function is called in a message, without the arguments that it is bound to: they may be secrets."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", function))


def attempt_parameter(
    function: Callable[..., Any],
    kind: type[AttemptView],
    policy: Policy,
    *,
    parameters: Mapping[str, inspect.Parameter] | None = None,
    hints: Mapping[str, Any] | None = None,
) -> AttemptParameter | None:
    """The parameter by which `function` asks for its attempt, of the class `kind`; None where it asks for none.

    Raises:
        UsageError: it asks for one of the other kind, for several, by position only, or under a policy that cannot
            give it one each time.
    """
    parameters = inspect.signature(function).parameters if parameters is None else parameters
    hints = resolved_hints(function) if hints is None else hints
    found: list[AttemptParameter] = []
    for name, parameter in parameters.items():
        members = attempts_in(hints.get(name, parameter.annotation))
        if members:
            _check_attempt(function, parameter, members, kind)
            found.append(_described(parameter, parameters, members))
    if len(found) > 1:
        message = (
            f"{name_of(function)} asks for its attempt as {found[0].name!r} and as {found[1].name!r}; nothing ran. "
            f"Ask for it once."
        )
        raise UsageError(message)
    if found and policy.store_down == "run" and not found[0].may_be_none:
        message = (
            f'Under store_down="run" there is no attempt while the store is down, and {name_of(function)} needs one; '
            f"nothing ran. Write {found[0].name}: {kind.__name__} | None."
        )
        raise UsageError(message)
    return found[0] if found else None


def handler_with_attempt(handler: Callable[[], Any], kind: type[AttemptView], policy: Policy) -> Callable[[], Any]:
    """The handler of `run`, which is called without arguments, or with its attempt if it asks for it.

    Raises:
        UsageError: it asks for it in a way that cannot be.
    """
    target = handler.func if isinstance(handler, functools.partial) else handler
    declared = getattr(target, "__annotations__", None) or getattr(type(target).__call__, "__annotations__", {})
    if not any("Attempt" in str(annotation) for name, annotation in declared.items() if name != "return"):
        return handler
    parameter = attempt_parameter(handler, kind, policy)
    return handler if parameter is None else HandlerWithAttempt(parameter, handler)


_ATTEMPT_TEXT: Final = re.compile(r"(?:\w+\.)*((?:Async)?Attempt)")


def attempts_in(annotation: Any) -> list[Any]:
    """What an annotation stands for, if an attempt is among it: classes, or their names where they are only text.

    An import for type checkers alone is not there at run time; then the name has to do.
    """
    if isinstance(annotation, str):
        text = annotation.strip("\"' ")
        optional = re.fullmatch(r"(?:\w+\.)*Optional\[(.*)\]", text)
        parts = [optional.group(1), "None"] if optional else text.split("|")
        members: list[Any] = [part.strip("\"' ") for part in parts]
        matches = (_ATTEMPT_TEXT.fullmatch(member) for member in members)
        return members if any(matches) else []
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = list(typing.get_args(annotation)) if is_union else [annotation]
    return members if any(isinstance(member, type) and issubclass(member, AttemptView) for member in members) else []


def _check_attempt(
    function: Callable[..., Any], parameter: inspect.Parameter, members: list[Any], kind: type[AttemptView]
) -> None:
    names = [
        match.group(1) if isinstance(member, str) and (match := _ATTEMPT_TEXT.fullmatch(member)) else member
        for member in members
    ]
    if kind not in names and kind.__name__ not in names:
        message = (
            f"{name_of(function)} asks for an attempt of the other kind; nothing ran. "
            f"Write {parameter.name}: {kind.__name__}."
        )
        raise UsageError(message)
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        message = (
            f"{name_of(function)} asks for its attempt by a parameter that has no name for those who call it; nothing "
            f"ran. Write a plain {parameter.name}: {kind.__name__}."
        )
        raise UsageError(message)


def _described(
    parameter: inspect.Parameter, parameters: Mapping[str, inspect.Parameter], members: list[Any]
) -> AttemptParameter:
    by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    may_be_none = parameter.default is None or "None" in members or type(None) in members
    return AttemptParameter(parameter.name, None if by_name else list(parameters).index(parameter.name), may_be_none)


KeyRule = str | tuple[str, ...] | Callable[..., Any]
ScopeRule = str | tuple[str, ...] | Callable[..., Any] | Shared
FingerprintRule = str | tuple[str, ...] | Callable[..., Any] | None
AboutRule = Mapping[str, Any] | About | Callable[..., Any] | None


@dataclass(frozen=True, slots=True)
class CallSpec:
    """How to read one function's calls."""

    operation: str
    signature: inspect.Signature
    names: FastBinder | None
    key: Callable[[Mapping[str, Any], Any, Any], Any]
    scope: Callable[[Mapping[str, Any], Any, Any], Any]
    about: AboutRule
    asked: Callable[[Mapping[str, Any], Any, Any], Any] | None
    fingerprints: Fingerprints
    policy: Policy
    terms: Terms
    shape: codec.Shape
    attempt: AttemptParameter | None = None

    def request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        """What one call asks for.

        Raises:
            UsageError: the arguments give no key, no scope, or no fingerprint.
            TypeError: they are not what the function takes, or give its attempt.
        """
        if self.attempt is not None:
            self.attempt.refuse_given(args, kwargs, self.operation)
        values = (None if self.names is None else self.names.bind(args, kwargs)) or self._bind(args, kwargs)
        key = Key.of(self.key(values, args, kwargs), operation=self.operation, scope=self.scope(values, args, kwargs))
        asked = values if self.asked is None else self.asked(values, args, kwargs)
        taken = self.fingerprints.take(asked)
        about = self.about
        if about is not None:
            about = About.of(about(*args, **kwargs) if callable(about) else about)
        return Request(key, taken, self.policy, self.terms, about or NOTHING, self.shape, asked, self.fingerprints)

    def request_under(self, key: Key, about: About, arguments: dict[str, Any]) -> Request:
        """What one call asks for whose key is known already; `arguments` are all of them, by name."""
        asked = arguments if self.asked is None else self.asked(arguments, (), arguments)
        taken = self.fingerprints.take(asked)
        return Request(key, taken, self.policy, self.terms, about, self.shape, asked, self.fingerprints)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments


@dataclass(frozen=True, slots=True)
class FastBinder:
    """The parameters of an ordinary function: binds ordinary calls, in a tenth of the time `Signature.bind` takes."""

    every: tuple[str, ...]
    positional: int
    defaults: dict[str, Any]

    @staticmethod
    def of(parameters: Mapping[str, inspect.Parameter]) -> FastBinder | None:
        """The names, or None where a call has to be bound with care: `*args`, `**kwargs`, positional-only."""
        kinds = [parameter.kind for parameter in parameters.values()]
        if not set(kinds) <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}:
            return None
        positional = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return FastBinder(tuple(parameters), positional, _defaults(parameters))

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments by name; None for a call that is not in order."""
        if len(args) > self.positional:
            return None
        values = dict(zip(self.every, args, strict=False))
        if len(values) == len(self.every) and not kwargs:
            return values
        if values.keys() & kwargs.keys():
            return None
        values = {**self.defaults, **values, **kwargs}
        return values if values.keys() == set(self.every) else None


def _defaults(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """What a call that does not name a parameter gives to it."""
    empty: dict[Any, Any] = {inspect.Parameter.VAR_POSITIONAL: (), inspect.Parameter.VAR_KEYWORD: {}}
    given = {name: empty.get(p.kind, p.default) for name, p in parameters.items()}
    return {name: default for name, default in given.items() if default is not inspect.Parameter.empty}


def call_spec_of(
    function: Callable[..., Any],
    *,
    key: KeyRule,
    scope: ScopeRule,
    operation: str | None,
    ignore: tuple[str, ...],
    about: AboutRule,
    policy: Policy,
    fingerprint: FingerprintRule = None,
    secrets: Secrets = NO_SECRETS,
    hints: Mapping[str, Any] | None = None,
    attempt_class: type[AttemptView] = AttemptView,
    upgrade: Callable[[Any], Any] | None = None,
) -> CallSpec:
    """Work out how calls of `function` are read; `attempt_class` is what those get who ask for their attempt.

    Raises:
        UsageError: a name is unknown, an annotation cannot be encoded or replayed, or the operation has no name.
    """
    signature = inspect.signature(function)
    hints = resolved_hints(function) if hints is None else hints
    attempt = attempt_parameter(function, attempt_class, policy, parameters=signature.parameters, hints=hints)
    if attempt is not None:
        _refuse_named(attempt.name, key=key, scope=scope, fingerprint=fingerprint)
        given = [parameter for name, parameter in signature.parameters.items() if name != attempt.name]
        signature = signature.replace(parameters=given)
        ignore = tuple(name for name in _names(ignore) if name != attempt.name)
    parameters = signature.parameters
    roots = [
        *_whole_parameters("key", key, parameters),
        *_whole_parameters("scope", scope, parameters),
        *_ignored(ignore, parameters),
    ]
    compared = _compared(fingerprint, ignore, parameters)
    if compared is None:
        compared = tuple(name for name in parameters if name not in roots)
    _check_encodable([path for path in compared if "." not in path], hints, function)
    return CallSpec(
        operation=operation_name(function, operation),
        signature=signature,
        names=FastBinder.of(parameters),
        key=_make_reader("key", key),
        scope=_make_reader("scope", scope),
        about=about,
        asked=_asked_reader(fingerprint, compared),
        fingerprints=_fingerprints(fingerprint, compared, parameters, secrets),
        policy=policy,
        terms=terms_of(policy),
        shape=_upgrading_shape(shape_of_result(function, hints), upgrade),
        attempt=attempt,
    )


def _upgrading_shape(shape: codec.Shape, upgrade: Callable[[Any], Any] | None) -> codec.Shape:
    """The shape that reads older values through `upgrade` where they do not fit.

    Raises:
        UsageError: it could never be asked, or not from here.
    """
    if upgrade is None:
        return shape
    if not callable(upgrade) or is_async(upgrade):
        message = "upgrade= takes a plain function of the stored value; nothing was decorated. Write it with 'def'."
        raise UsageError(message)
    if isinstance(shape, codec.PlainAdapter):
        message = (
            "upgrade= brings stored values to the declared result type, and none is declared, so it would never be "
            "asked; nothing was decorated. Annotate what the function returns."
        )
        raise UsageError(message)
    return codec.UpgradingAdapter(shape, upgrade)


def _refuse_named(attempt: str, **rules: Any) -> None:
    """Refuse a rule that names the attempt.

    Raises:
        UsageError: one of them does.
    """
    for what, rule in rules.items():
        paths = [path for path in _names(rule) if isinstance(path, str)] if isinstance(rule, str | tuple) else []
        if any(path.split(".")[0] == attempt for path in paths):
            message = (
                f"{what}= names {attempt!r}, which is the attempt: every run has another one; nothing ran. "
                f"Name what callers give."
            )
            raise UsageError(message)


def _names(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def shape_of_result(function: Callable[..., Any], hints: Mapping[str, Any] | None = None) -> codec.Shape:
    """The shape of what a handler declares to return."""
    hints = resolved_hints(function) if hints is None else hints
    return codec.shape_of(hints.get("return", codec.NO_ANNOTATION))


class ShapeCache:
    """The shapes of results by function, each looked at once: a step is run over and over."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, codec.Shape] = WeakKeyDictionary()

    def of(self, function: Callable[..., Any]) -> codec.Shape:
        """The shape of what `function` declares to return."""
        plain = getattr(function, "__func__", function)  # a method is made anew each time it is looked up
        try:
            known = self._known.get(plain)
            if known is None:
                known = self._known[plain] = shape_of_result(function)
        except TypeError:
            return shape_of_result(function)  # such as a callable object that nothing can refer to weakly
        return known


def operation_name(function: Callable[..., Any], given: str | None) -> str:
    """The name of the operation: as given, else where the function lives.

    Raises:
        UsageError: a lambda or a partial has no name that lasts, or the name given cannot be one.
    """
    if given is not None:
        return Key.of("any", operation=given).operation
    name = getattr(function, "__qualname__", None)
    if name is None or "<lambda>" in name or isinstance(function, functools.partial):
        message = "A lambda or partial has no name that lasts; nothing ran. Give operation=."
        raise UsageError(message)
    return Key.of("any", operation=f"{function.__module__}.{name}").operation


def resolved_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations as types. What cannot be resolved is left out, except for the result.

    Raises:
        UsageError: the result's annotation names something that cannot be found.
    """
    target = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    if not hasattr(target, "__annotations__"):
        target = getattr(type(target), "__call__", target)  # noqa: B004 - an object that can be called
    try:
        return typing.get_type_hints(target, localns=_enclosing_names(target))
    except Exception:  # noqa: BLE001 - names only known to type checkers; then one by one
        return _hints_one_by_one(target)


def _enclosing_names(target: Any) -> dict[str, Any]:
    """Names that annotations may use besides the module's: the closure, and where the function is being defined."""
    names: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == getattr(target, "__module__", None):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _hints_one_by_one(target: Any) -> Mapping[str, Any]:
    hints: dict[str, Any] = {}
    namespace = {**getattr(target, "__globals__", {}), **_enclosing_names(target)}
    for name, annotation in getattr(target, "__annotations__", {}).items():
        try:
            hints[name] = eval(annotation, namespace) if isinstance(annotation, str) else annotation  # noqa: S307 - the function's own source
        except Exception as problem:  # noqa: BLE001 - names only known to type checkers
            if name == "return":
                message = (
                    f"The result annotation {annotation!r} cannot be resolved ({problem}); nothing ran. "
                    f"Import it at run time, so that replays can be decoded to it."
                )
                raise UsageError(message) from None
    return hints


def _whole_parameters(what: str, rule: Any, parameters: Mapping[str, Any]) -> list[str]:
    """The parameters that are wholly key or scope; of a dotted path the rest of the object stays in the fingerprint."""
    if (isinstance(rule, Shared) and what == "scope") or callable(rule):
        return []
    paths = (rule,) if isinstance(rule, str) else rule
    if not isinstance(paths, tuple) or not paths or not all(isinstance(p, str) and all(p.split(".")) for p in paths):
        message = f"{what}= is a parameter name, a tuple of names, or a callable, not {rule!r}; nothing ran."
        raise UsageError(message)
    for path in paths:
        if path.split(".")[0] not in parameters:
            message = f"{what}={path!r} names no parameter; nothing ran. There are: {', '.join(parameters) or 'none'}."
            raise UsageError(message)
    return [path for path in paths if "." not in path]


def _ignored(ignore: tuple[str, ...], parameters: Mapping[str, Any]) -> tuple[str, ...]:
    names = _names(ignore)
    unknown = [name for name in names if name not in parameters]
    if unknown:
        message = f"ignore= names {unknown[0]!r}, which is no parameter; nothing ran."
        raise UsageError(message)
    return names


def _compared(rule: Any, ignore: tuple[str, ...], parameters: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names and paths that `fingerprint=` gives; None where it is left out, none where a callable is to say."""
    if rule is None:
        return None
    if ignore:
        message = "fingerprint= says what is compared, so ignore= has nothing to leave out; nothing ran. Give only one."
        raise UsageError(message)
    paths = (rule,) if isinstance(rule, str) else rule
    if callable(paths) or paths == ():
        return ()
    _whole_parameters("fingerprint", paths, parameters)
    return tuple(dict.fromkeys(paths))


def _asked_reader(rule: Any, compared: tuple[str, ...]) -> Callable[[Mapping[str, Any], Any, Any], Any] | None:
    """How to get what is compared from a call; None where that is the arguments by name."""
    if callable(rule):
        return lambda _values, args, kwargs: rule(*args, **kwargs)
    if not any("." in path for path in compared):
        return None
    readers = {path: _make_path_reader(path, UsageError) for path in compared}
    return lambda values, _args, _kwargs: {path: read(values) for path, read in readers.items()}


def _fingerprints(
    rule: Any, compared: tuple[str, ...], parameters: Mapping[str, inspect.Parameter], secrets: Secrets
) -> Fingerprints:
    if callable(rule):
        return Fingerprints(secrets)
    members = FixedFieldsWithoutDefaults(compared, _defaults(parameters))
    return Fingerprints(secrets, {1: FixedFields(compared).encode, 2: members.encode})


def _check_encodable(asked: Iterable[str], hints: Mapping[str, Any], function: Callable[..., Any]) -> None:
    for name in asked:
        if name in ("self", "cls") and name not in hints:
            problem: str | None = "it is the object the method belongs to"
        else:
            problem = why_not(hints.get(name, Any))
        if problem is not None:
            message = (
                f"The argument {name!r} of {getattr(function, '__qualname__', function)} cannot be part of the "
                f"fingerprint: {problem}. Nothing ran; leave it out with ignore=({name!r},)."
            )
            raise UsageError(message)


def _make_reader(what: str, rule: Any) -> Callable[[Mapping[str, Any], Any, Any], Any]:
    if isinstance(rule, Shared):
        return lambda _values, _args, _kwargs: SHARED
    if callable(rule):
        return lambda _values, args, kwargs: _as_key(what, rule(*args, **kwargs))
    if isinstance(rule, str):
        read = _make_path_reader(rule)

        def read_one(values: Mapping[str, Any], _args: Any, _kwargs: Any) -> Any:
            value = read(values)
            return value if type(value) is str else _as_key(what, value)

        return read_one
    readers = [_make_path_reader(path) for path in rule]
    return lambda values, _args, _kwargs: tuple(read(values) for read in readers)


def _make_path_reader(path: str, error: type[UsageError] = KeyMissing) -> Callable[[Mapping[str, Any]], Any]:
    root, *rest = path.split(".")
    if not rest:
        return operator.itemgetter(root)

    def read(values: Mapping[str, Any]) -> Any:
        found = values[root]
        for name in rest:
            try:
                found = found[name] if isinstance(found, Mapping) else getattr(found, name)
            except (LookupError, AttributeError):
                message = f"{path!r} leads nowhere: there is no {name!r} in a {type(found).__name__}; nothing ran."
                raise error(message) from None
        return found

    return read


def _as_key(what: str, value: Any) -> Any:
    """One argument as key: text as it is, other plain values as a tuple of one, so that 1 is not "1"."""
    if value is None:
        message = f"The argument that is the {what} is None; nothing ran. Give it a value."
        raise KeyMissing(message)
    # A string enum is equal to its text, so it is the same key.
    return value if isinstance(value, (str, Shared)) or type(value) is tuple else (value,)
