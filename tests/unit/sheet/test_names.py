"""What the objects of semel show: the names on the sheet, and none of their insides."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from semel import AsyncSemel, Semel

SHEET = [
    "close",
    "count",
    "counts",
    "current",
    "erase",
    "erase_subject",
    "from_settings",
    "history",
    "once",
    "open",
    "purge_cached",
    "read",
    "records",
    "reopen",
    "resolve",
    "run",
    "sweep",
    "value",
    "within",
]
ATTEMPT = ["about", "derive", "fence", "in_doubt", "key", "number", "step"]


def names(thing: object) -> list[str]:
    """The names without an underscore, as an editor proposes them."""
    return [name for name in dir(thing) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [Semel, AsyncSemel])
def test_an_engine_shows_what_is_on_the_sheet_and_nothing_else(kind: Callable[[str], object]) -> None:
    assert names(kind("memory://")) == SHEET


@pytest.mark.parametrize("kind", [Semel, AsyncSemel])
def test_an_engine_shows_where_its_records_are(kind: Callable[[str], object]) -> None:
    assert repr(kind("sqlite:////nowhere/shop.db")) == f"{kind.__name__}('sqlite:////nowhere/shop.db')"


def test_a_decorated_function_shows_how_to_get_the_whole_result() -> None:
    with Semel("memory://") as semel:

        class Shop:
            @semel.once(key="order", ignore=("self",))
            def charge(self, order: str) -> str:
                return order

        assert names(Shop.charge) == ["result"]
        assert names(Shop().charge) == ["result"]


def test_an_attempt_shows_what_handlers_may_ask_and_nothing_else() -> None:
    with Semel("memory://") as semel:
        found: list[Any] = []
        semel.run("o-1", lambda: found.append(semel.current()), operation="charge", fingerprint=None)
        assert names(found[0]) == ATTEMPT


def test_an_engine_within_a_transaction_shows_how_to_call_in_it(tmp_path: Any) -> None:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    with Semel(path) as semel:
        assert names(semel.within(connection)) == ["open", "run"]
    connection.close()
