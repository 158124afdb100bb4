"""A call of the suite through a function decorated with `once`, equal to the same call of `run`.

Key, scope and what is compared are arguments, and the function declares the result that the handler declares, so that
the record is the same byte for byte and scenarios need not know how they were called.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from semel.core.key import SHARED
from semel.testing.contract.engine_adapters import Colour

_UNDECLARED = object()


class DecoratedCall:
    """One call, as arguments of `run`, made through a decorated function or, with `as_method`, a decorated method."""

    def __init__(
        self, colour: Colour, engine: Any, key: Any, handler: Callable[[], Any], *, as_method: bool, **settings: Any
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
