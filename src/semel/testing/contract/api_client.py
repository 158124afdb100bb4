"""The client of a scenario: a sync or async engine behind one interface. Two on the same records play two processes.

A scenario reaches the engine by `run` or through a function decorated with `once`, as its world says, and cannot tell
the difference: key, scope and what is compared are arguments of the function, and it declares the result that the
handler declares, so that the record is the same byte for byte. The first process of a world decorates functions, every
other one methods.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from semel.core.key import SHARED
from semel.core.record import Count, HistoryEntry, Record, Resolution
from semel.engine.admin import SweepReport
from semel.engine.call_flow import Result
from semel.testing.contract.calls import Call
from semel.testing.contract.engine_adapters import EngineAdapter, Wake

if TYPE_CHECKING:
    from semel.testing.contract.world import World

_UNDECLARED = object()


class DecoratedCall:
    """One call, as arguments of `run`, made through a decorated function or, with `as_method`, a decorated method."""

    def __init__(
        self,
        colour: EngineAdapter,
        engine: Any,
        key: Any,
        handler: Callable[[], Any],
        *,
        as_method: bool,
        **settings: Any,
    ) -> None:
        self._colour = colour
        self._engine = engine
        self._handler = handler
        self._as_method = as_method
        self._arguments = (key, settings.pop("scope", SHARED), settings.pop("fingerprint", None))
        self._returns = settings.pop("returns", _UNDECLARED)
        self._settings = settings

    def result(self) -> Any:
        """Decorate and ask for the whole `Result`; decorating is part of the call, for it may be refused."""
        return self._decorate().result(*self._arguments)

    def value(self) -> Any:
        """Decorate and call it as users do, for the value alone."""
        return self._decorate()(*self._arguments)

    def _decorate(self) -> Any:
        function = self._colour.with_arguments(self._handler, as_method=self._as_method)
        function.__annotations__ = self._declared()
        compared = _compared_by_a_method if self._as_method else _compared
        once = self._engine.once(key="key", scope="scope", fingerprint=compared, **self._settings)(function)
        return _method_of_an_object(once) if self._as_method else once

    def _declared(self) -> dict[str, Any]:
        if self._returns is not _UNDECLARED:
            return {"return": self._returns}
        hints = typing.get_type_hints(self._handler)
        return {"return": hints["return"]} if "return" in hints else {}


def _compared(key: Any, scope: Any, asked: Any) -> Any:
    return asked


def _compared_by_a_method(_self: object, key: Any, scope: Any, asked: Any) -> Any:
    return asked


def _method_of_an_object(once: Any) -> Any:
    """The decorated function as its users have it who decorate methods: looked up on an object."""
    return type("Service", (), {"call": once})().call


CallStyle = Literal["run", "decorated"]
OPERATION = "pay"
Handler = Callable[..., Any]


class CurrentAttempt:
    """The attempt that is running, from inside its handler; `step` is awaited in both colours."""

    def __init__(self, client: ApiClient, attempt: Any) -> None:
        self._client = client
        self._attempt = attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attempt, name)

    async def step(self, name: str, function: Handler, *args: Any) -> Any:
        """A step of this attempt."""
        return await self._client.world.colour.step(self._attempt, name, function, args)


class DecoratedFunction:
    """A function decorated with `once`, called and awaited in both colours."""

    def __init__(self, client: ApiClient, function: Any) -> None:
        self._client = client
        self.function = function

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await self._client.call(functools.partial(self.function, *args, **kwargs))

    async def result(self, *args: Any, **kwargs: Any) -> Result[Any]:
        """Call it and get the whole `Result`."""
        found: Result[Any] = await self._client.call(functools.partial(self.function.result, *args, **kwargs))
        return found


class ApiClient:
    """One engine, with its own lane and keeper."""

    def __init__(self, world: World, engine: Any, *, decorates_methods: bool) -> None:
        self.world = world
        self.engine = engine
        self._decorates_methods = decorates_methods

    def start(self, key: Any = "k", handler: Handler | None = None, **settings: Any) -> Call:
        """Begin a call and go on without waiting for it."""
        return self.world.start(self._asking(key, handler, settings, for_value=False))

    def _asking(
        self, key: Any, handler: Handler | None, settings: dict[str, Any], *, for_value: bool
    ) -> Callable[[], Any]:
        """The method that makes a call; `for_value` where nobody looks at more of the result than its value."""
        colour = self.world.colour
        adapted = colour.adapt(handler or self.world.returning("value"))
        settings = {"operation": OPERATION, **settings}
        if self.world.call_style == "run":
            return functools.partial(self.engine.run, key, adapted, **{"fingerprint": None, **settings})
        call = DecoratedCall(colour, self.engine, key, adapted, as_method=self._decorates_methods, **settings)
        return call.value if for_value else call.result

    async def run(self, key: Any = "k", handler: Handler | None = None, **settings: Any) -> Result[Any]:
        """A call from its beginning to its end; time passes only where everybody waits for it."""
        found: Result[Any] = await self.world.finish(self.start(key, handler, **settings))
        return found

    async def value(self, key: Any = "k", handler: Handler | None = None, **settings: Any) -> Any:
        """The value of a call, from its beginning to its end."""
        found = await self.world.finish(self.world.start(self._asking(key, handler, settings, for_value=True)))
        return found.value if self.world.call_style == "run" else found

    async def error(self, key: Any = "k", handler: Handler | None = None, **settings: Any) -> BaseException:
        """The error that a call ends with."""
        call = self.world.start(self._asking(key, handler, settings, for_value=True))
        await self.world.ended(call)
        assert call.error is not None, f"the call gave {call.result!r} instead of an error"
        return call.error

    async def call(self, method: Callable[[], Any]) -> Any:
        """Any other method of the engine, from its beginning to its end."""
        return await self.world.finish(self.world.start(method))

    def once(self, **rules: Any) -> Callable[[Handler], DecoratedFunction]:
        """Decorate a function, written in either colour."""
        return lambda function: DecoratedFunction(self, self.engine.once(**rules)(self.world.colour.adapt(function)))

    def current(self) -> CurrentAttempt:
        """The attempt whose handler is running here."""
        return CurrentAttempt(self, self.engine.current())

    async def read(self, key: Any = "k", *, operation: Any = OPERATION, **place: Any) -> Record:
        """The record of a key, which has to be there."""
        record: Record | None = await self.find(key, operation=operation, **place)
        assert record is not None, f"there is no record of {key!r}"
        return record

    async def find(self, key: Any = "k", *, operation: Any = OPERATION, **place: Any) -> Record | None:
        """The record of a key, if there is one."""
        found: Record | None = await self.call(functools.partial(self.engine.read, key, operation=operation, **place))
        return found

    async def records(self, **query: Any) -> list[Record]:
        """Every record asked for."""
        return await self.world.colour.records(self.engine, query)

    async def keys(self, **query: Any) -> list[str]:
        """The key values of every record asked for."""
        return [record.key.value for record in await self.records(**query)]

    async def count(self, **query: Any) -> int:
        """How many records are asked for."""
        number: int = await self.call(functools.partial(self.engine.count, **query))
        return number

    async def counts(self, **query: Any) -> list[Count]:
        """How many there are of each operation and status."""
        found: list[Count] = await self.call(functools.partial(self.engine.counts, **query))
        return found

    async def resolve(
        self, resolution: Resolution, key: Any = "k", *, operation: Any = OPERATION, reason: Any = "asked", **rest: Any
    ) -> Record:
        """End a doubt."""
        method = functools.partial(self.engine.resolve, key, resolution, operation=operation, reason=reason, **rest)
        record: Record = await self.call(method)
        return record

    async def reopen(self, key: Any = "k", *, operation: Any = OPERATION, reason: Any = "asked", **rest: Any) -> Record:
        """Let a key run again."""
        method = functools.partial(self.engine.reopen, key, operation=operation, reason=reason, **rest)
        record: Record = await self.call(method)
        return record

    async def stored_value(self, key: Any = "k", returns: Any = Any, *, operation: Any = OPERATION, **rest: Any) -> Any:
        """What is stored for a key, without a call."""
        return await self.call(functools.partial(self.engine.value, key, returns, operation=operation, **rest))

    async def erase(self, key: Any = "k", *, operation: Any = OPERATION, reason: Any = "asked", **rest: Any) -> Record:
        """Erase a record."""
        method = functools.partial(self.engine.erase, key, operation=operation, reason=reason, **rest)
        record: Record = await self.call(method)
        return record

    async def purge_cached(self, key: Any = "k", *, operation: Any = OPERATION, **place: Any) -> None:
        """Take a record out of the caches in front of the store."""
        await self.call(functools.partial(self.engine.purge_cached, key, operation=operation, **place))

    async def history(self, key: Any = "k", *, operation: Any = OPERATION, **place: Any) -> tuple[HistoryEntry, ...]:
        """What happened to a record."""
        method = functools.partial(self.engine.history, key, operation=operation, **place)
        entries: tuple[HistoryEntry, ...] = await self.call(method)
        return entries

    async def sweep(self, *, limit: int | None = None) -> SweepReport:
        """Sweep once."""
        report: SweepReport = await self.call(lambda: self.engine.sweep(limit=limit))
        return report

    async def close(self) -> None:
        """Close the engine; it opens again when it is used again."""
        await self.world.colour.close(self.engine)

    def waiters(self) -> int:
        """How many wait for somebody else's key here."""
        return self.world.colour.waiters(self.engine)

    def keepers(self) -> list[Wake]:
        """The wake-ups of the keepers that are alive here."""
        return self.world.colour.keepers(self.engine)
