"""`current()` is the attempt of the engine that is asked, whichever other engines run handlers around it."""

import asyncio

import pytest

from semel import AsyncSemel, Semel
from semel.errors import UsageError


def test_another_engine_has_no_attempt_inside_a_handler() -> None:
    with Semel("memory://") as one, Semel("memory://") as other:

        def handler() -> int:
            with pytest.raises(UsageError, match="inside a handler that another engine runs"):
                other.current()
            return one.current().number

        assert one.run("o-1", handler, operation="pay", fingerprint=None).value == 1


def test_handlers_of_two_engines_have_each_their_own_attempt() -> None:
    with Semel("memory://") as one, Semel("memory://") as other:

        def inner() -> list[str]:
            return [one.current().key.operation, other.current().key.operation]

        def outer() -> list[str]:
            return other.run("o-1", inner, operation="ship", fingerprint=None).value

        assert one.run("o-1", outer, operation="pay", fingerprint=None).value == ["pay", "ship"]


def test_awaited_handlers_of_two_engines_have_each_their_own_attempt() -> None:
    async def play() -> list[str]:
        async with AsyncSemel("memory://") as one, AsyncSemel("memory://") as other, AsyncSemel("memory://") as third:

            async def inner() -> list[str]:
                with pytest.raises(UsageError, match="another engine"):
                    third.current()
                return [one.current().key.operation, other.current().key.operation]

            async def outer() -> list[str]:
                return (await other.run("o-1", inner, operation="ship", fingerprint=None)).value

            return (await one.run("o-1", outer, operation="pay", fingerprint=None)).value

    assert asyncio.run(play()) == ["pay", "ship"]


def test_outside_of_every_handler_there_is_no_attempt() -> None:
    with Semel("memory://") as semel, pytest.raises(UsageError, match="outside a handler"):
        semel.current()
