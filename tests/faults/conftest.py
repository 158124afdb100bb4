"""What the faults of every store on a server share: both colours, and users of the store that a folder names.

What always holds: a folder whose tests want users says by the fixture `store_kind` which store, and by `url` where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.decorated import CALL_STYLES, CallStyle
from tests.faults.users import COLOURS, Colour, MakeUser, User


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Colour:
    chosen: Colour = request.param
    return chosen


@pytest.fixture(params=CALL_STYLES)
def call_style(request: pytest.FixtureRequest) -> CallStyle:
    """How engines are called; by turns, for what memory proves in both styles need not be repeated on a server."""
    chosen: CallStyle = request.param
    return chosen


@pytest.fixture
def make_user(store_kind: Callable[..., Any], url: str, colour: Colour) -> Iterator[MakeUser]:
    with ExitStack() as stack:

        def make(at: str = url, **settings: Any) -> User:
            return stack.enter_context(User(store_kind(at, **settings), colour))

        yield make


@pytest.fixture
def user(make_user: MakeUser) -> User:
    return make_user()
