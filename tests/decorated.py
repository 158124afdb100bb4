"""A call through a function decorated with `once` that asks for what the same call of `run` asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from semel import SHARED

CallStyle = Literal["run", "decorated"]
CALL_STYLES: tuple[CallStyle, ...] = ("run", "decorated")


def call(style: CallStyle, semel: Any, key: str, handler: Callable[[], Any], **settings: Any) -> Any:
    """The `Result` of a call in this style; something to await it by, where the engine is asynchronous."""
    return (
        semel.run(key, handler, **{"fingerprint": None, **settings})
        if style == "run"
        else _call_decorated(semel, key, handler, **settings)
    )


def _call_decorated(
    semel: Any, key: str, handler: Callable[[], Any], *, scope: Any = SHARED, fingerprint: Any = None, **settings: Any
) -> Any:
    def function(key: str) -> Any:
        return handler()

    async def coroutine_function(key: str) -> Any:
        return await handler()

    decorated = coroutine_function if inspect.iscoroutinefunction(semel.run) else function
    hints = inspect.get_annotations(handler, eval_str=True) if inspect.isfunction(handler) else {}
    decorated.__annotations__ = {"return": hints["return"]} if "return" in hints else {}
    for_whom = scope if scope is SHARED else lambda key: scope
    once = semel.once(key="key", scope=for_whom, fingerprint=lambda key: fingerprint, **settings)
    return once(decorated).result(key)
